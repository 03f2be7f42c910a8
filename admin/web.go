package admin

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
)

//go:embed page
var page embed.FS

// webHandler is what may be looked at.
func (s *Server) webHandler() http.Handler { return s.counted(headers(s.views())) }

func (s *Server) views() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", s.live)
	mux.HandleFunc("GET /ready", s.ready)
	mux.HandleFunc("GET /status", s.status)
	mux.Handle("GET /metrics", s.options.Metrics)
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic("admin: " + err.Error())
	}
	for path, file := range map[string]string{"/{$}": "index.html", "/page.css": "page.css", "/page.js": "page.js", "/verdict.js": "verdict.js"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, files, file) })
	}
	return mux
}

// headers keep a browser from loading anything from elsewhere, from showing the page inside another, and from keeping it.
func headers(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cache-Control", "no-store")
		h.ServeHTTP(w, r)
	})
}

func (s *Server) live(w http.ResponseWriter, _ *http.Request) {
	var reasons []string
	if err := s.options.Live(); err != nil {
		reasons = []string{err.Error()}
	}
	answer(w, reasons)
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) { answer(w, s.options.Ready()) }

// answer is ok, or 503 with one reason a line.
func answer(w http.ResponseWriter, reasons []string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if len(reasons) == 0 {
		fmt.Fprintln(w, "ok")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprintln(w, strings.Join(reasons, "\n"))
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	body, err := json.Marshal(s.options.Status())
	if err != nil {
		http.Error(w, "the status cannot be written as JSON: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // a client that is gone needs no answer
}
