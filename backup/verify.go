package backup

import (
	"errors"
	"fmt"
	"io"
)

// errRefused is what a writer of a snapshot is told once the snapshot does not verify.
var errRefused = errors.New("the snapshot does not verify")

// verifying runs feed, which writes a snapshot, beside verify, which reads it. It returns when both have ended. A snapshot that goes
// on behind what verify has read does not verify.
func verifying(verify Verify, feed func(w io.Writer) error) error {
	r, w := io.Pipe()
	verified := make(chan error, 1)
	go func() {
		err := verify(r)
		if err == nil {
			err = atEnd(r)
		}
		r.CloseWithError(errRefused)
		verified <- err
	}()
	err := feed(w)
	w.CloseWithError(err)
	verr := <-verified
	if err != nil && !errors.Is(err, errRefused) {
		return err
	}
	if verr != nil {
		return fmt.Errorf("%w: %w", errRefused, verr)
	}
	return nil
}

func atEnd(r io.Reader) error {
	var more [1]byte
	switch n, err := io.ReadFull(r, more[:]); {
	case n > 0:
		return errors.New("something follows it")
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}
