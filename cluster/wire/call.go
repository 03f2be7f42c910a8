package wire

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Bounds of calls. A peer is dead when it has answered nothing for silentFor and then not the question whether it is there, for
// answerFor: a call ends then, whatever its deadline.
const (
	callFor   = 10 * time.Second // a call without a deadline
	callMost  = time.Minute      // no handler runs longer
	silentFor = time.Second
	answerFor = 1500 * time.Millisecond
	idleFor   = time.Minute // a connection that no call uses
	textMost  = 4 << 10     // bytes of an error's text
)

// Headers of calls. The body is the question, or the answer, as it is.
const (
	headServer   = "Twgd-Server"   // the sender's server id
	headFounding = "Twgd-Founding" // the sender's founding, 32 hex digits
	headTimeout  = "Twgd-Timeout"  // what is left of the caller's deadline, in milliseconds
	headCode     = "Twgd-Code"     // of a RemoteError
)

func (p *Port) newClient() *http.Transport {
	return &http.Transport{
		DialContext:            p.dialCall,
		Protocols:              bareHTTP2(),
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: silentFor, PingTimeout: answerFor, WriteByteTimeout: silentFor + answerFor},
		DisableCompression:     true,
		MaxResponseHeaderBytes: 16 << 10,
	}
}

// bareHTTP2 is HTTP/2 without TLS, which is below it.
func bareHTTP2() *http.Protocols {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &p
}

// Call asks a peer and returns its answer. The call ends at ctx's deadline (after 10 s where it has none), and within 3 s where the peer
// falls silent. Errors are typed: see the package.
func (p *Port) Call(ctx context.Context, address, method string, body []byte) ([]byte, error) {
	if len(body) > MaxBody {
		return nil, &RemoteError{Code: CodeTooLarge, Text: fmt.Sprintf("a question of %d bytes is too large", len(body))}
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callFor)
		defer cancel()
	}
	answer, leave, err := p.roundTrip(ctx, address, p.request(ctx, address, method, body))
	if err != nil {
		return nil, p.unreached(ctx, address, err)
	}
	defer leave()
	defer answer.Body.Close()
	return p.answer(ctx, address, answer)
}

func (p *Port) request(ctx context.Context, address, method string, body []byte) *http.Request {
	r := &http.Request{
		Method:        http.MethodPost,
		URL:           &url.URL{Scheme: "http", Host: address, Path: "/" + method},
		Header:        http.Header{},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
	}
	p.say(r.Header)
	if end, has := ctx.Deadline(); has {
		r.Header.Set(headTimeout, strconv.FormatInt(max(1, time.Until(end).Milliseconds()), 10))
	}
	return r.WithContext(ctx)
}

// say writes who we are.
func (p *Port) say(h http.Header) {
	if id := p.o.ServerID(); id != "" {
		h.Set(headServer, id)
	}
	if f := p.founding(); f != (Founding{}) {
		h.Set(headFounding, f.String())
	}
}

// unreached makes an error of the client library into one that says who did not answer.
func (p *Port) unreached(ctx context.Context, address string, err error) error {
	if typed(err) || errors.As(err, new(ErrUnreachable)) {
		return err
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return ErrUnreachable{Address: address, Err: err}
}

// answer reads what a peer has answered.
func (p *Port) answer(ctx context.Context, address string, r *http.Response) ([]byte, error) {
	if r.StatusCode == http.StatusOK {
		body, err := readAll(io.LimitReader(r.Body, MaxBody+1), r.ContentLength)
		switch {
		case err != nil:
			return nil, p.unreached(ctx, address, err)
		case len(body) > MaxBody:
			return nil, &RemoteError{Code: CodeTooLarge, Text: "the answer of " + address + " is too large"}
		}
		return body, nil
	}
	if theirs, ok := parseFounding(r.Header.Get(headFounding)); ok && r.StatusCode == http.StatusConflict {
		err := ErrFoundings{Theirs: theirs, Ours: p.founding(), Address: address}
		p.refused(Refusal{Address: address, Reason: err})
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, textMost))
	if err != nil {
		return nil, p.unreached(ctx, address, err)
	}
	return nil, &RemoteError{Code: r.Header.Get(headCode), Text: string(text)}
}

// parseFounding reads the text of a founding. It is false where there is none, or zero.
func parseFounding(s string) (f Founding, ok bool) {
	if len(s) != hex.EncodedLen(len(f)) {
		return Founding{}, false
	}
	if _, err := hex.Decode(f[:], []byte(s)); err != nil {
		return Founding{}, false
	}
	return f, f != Founding{}
}
