package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"
	"time"
)

// Client talks to the node of a data directory over its socket. It may be used by several goroutines.
type Client struct{ http http.Client }

// Dial finds the node of a data directory, or says why it cannot be talked to.
func Dial(dataDir string) (*Client, error) {
	path, err := socketPath(dataDir)
	if err != nil {
		return nil, err
	}
	conn, err := net.DialTimeout("unix", path, 5*time.Second)
	if err != nil {
		return nil, explain(err, dataDir)
	}
	if err := conn.Close(); err != nil {
		return nil, fmt.Errorf("trying the socket: %w", err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	return &Client{http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}, nil
}

// ErrNoNode is what Dial wraps where nobody listens.
var ErrNoNode = errors.New("no node runs")

func explain(err error, dataDir string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w on %s", ErrNoNode, dataDir)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w on %s, the last one there was killed", ErrNoNode, dataDir)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the node's socket in %s may be used by the node's own user only: %w", dataDir, err)
	}
	return fmt.Errorf("connecting to the node: %w", err)
}

// Get reads one of the views, such as /status, with its HTTP status code.
func (c *Client) Get(ctx context.Context, path string) (code int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://node"+path, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("asking for %s: %w", path, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("asking for %s: %w", path, err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		return 0, nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return resp.StatusCode, body, nil
}

// Call runs a command. onProgress, which may be nil, gets each step as it comes. A command that failed is an *Error.
func (c *Client) Call(ctx context.Context, name string, args any, onProgress func(json.RawMessage)) (json.RawMessage, error) {
	body, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("arguments of %s: %w", name, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://node/command/"+name, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", name, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", name, err)
	}
	defer resp.Body.Close()
	return read(resp.Body, onProgress)
}

func read(r io.Reader, onProgress func(json.RawMessage)) (json.RawMessage, error) {
	lines := json.NewDecoder(r)
	for {
		var l line
		switch err := lines.Decode(&l); {
		case err != nil:
			return nil, fmt.Errorf("the node ended before it answered: %w", err)
		case l.Error != "":
			return nil, &Error{l.Exit, l.Error}
		case l.Result != nil:
			return l.Result, nil
		case onProgress != nil:
			onProgress(l.Progress)
		}
	}
}
