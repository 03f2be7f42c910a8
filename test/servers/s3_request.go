package servers

import (
	"net/http"
	"net/url"
	"strings"
)

func (m S3Match) matches(r S3Request) bool {
	return (m.Method == "" || m.Method == r.Method) && (m.Op == "" || m.Op == r.Op) && strings.Contains(r.Key, m.Key)
}

// describeRequest reads a path-style request: /bucket/key.
func describeRequest(r *http.Request) S3Request {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return S3Request{Method: r.Method, Op: operation(r.Method, key != "", r.URL.Query()), Bucket: bucket, Key: key,
		IfNoneMatch: r.Header.Get("If-None-Match")}
}

// operation names the API call of a request, as far as object stores are used here; a call that has no name there gets its method.
func operation(method string, object bool, query url.Values) string {
	switch {
	case method == http.MethodPost && query.Has("uploads"):
		return "CreateMultipartUpload"
	case method == http.MethodPost && query.Has("uploadId"):
		return "CompleteMultipartUpload"
	case method == http.MethodPost && query.Has("delete"):
		return "DeleteObjects"
	case method == http.MethodPut && query.Has("uploadId"):
		return "UploadPart"
	case method == http.MethodDelete && query.Has("uploadId"):
		return "AbortMultipartUpload"
	case object && method != http.MethodPost:
		return map[string]string{http.MethodPut: "PutObject", http.MethodGet: "GetObject", http.MethodHead: "HeadObject",
			http.MethodDelete: "DeleteObject"}[method]
	case method == http.MethodGet && query.Has("list-type"):
		return "ListObjectsV2"
	}
	return method
}
