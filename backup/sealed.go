package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// sealed is a small object as it is stored: a value and the SHA-256 of its bytes as they stand in the file. A flipped letter in a
// claim would let another node found the cluster a second time.
type sealed struct {
	Value json.RawMessage `json:"value"`
	Sum   string          `json:"sha256"`
}

func seal(v any) ([]byte, error) {
	value, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	b, err := json.Marshal(sealed{value, sumOf(value)})
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	return append(b, '\n'), nil
}

// unseal reads what seal wrote, and nothing else: writing it again must give the same bytes.
func unseal[T any](name string, b []byte) (v T, err error) {
	var s sealed
	if err := json.Unmarshal(b, &s); err != nil {
		return v, fmt.Errorf("%s: %w: %v", name, ErrDamaged, err)
	}
	if s.Sum != sumOf(s.Value) {
		return v, fmt.Errorf("%s: %w: its checksum does not match", name, ErrDamaged)
	}
	var of struct{ Version int }
	switch err := json.Unmarshal(s.Value, &of); {
	case err != nil:
		return v, fmt.Errorf("%s: %w: %v", name, ErrDamaged, err)
	case of.Version > version:
		return v, fmt.Errorf("%s: %w (%d)", name, ErrVersion, of.Version)
	}
	if err := json.Unmarshal(s.Value, &v); err != nil {
		return v, fmt.Errorf("%s: %w: %v", name, ErrDamaged, err)
	}
	if again, err := seal(v); err != nil || !bytes.Equal(again, b) || of.Version != version {
		return v, fmt.Errorf("%s: %w: it is not as it was written", name, ErrDamaged)
	}
	return v, nil
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
