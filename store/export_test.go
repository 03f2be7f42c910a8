package store

import "net/http"

// Over makes options whose s3: buckets talk to rt instead of the network.
func Over(rt http.RoundTripper, opt Options) Options {
	opt.transport = rt
	return opt
}
