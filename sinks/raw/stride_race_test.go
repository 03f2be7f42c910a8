//go:build race

package raw_test

// stride is the distance between the bits that are flipped. The race detector makes each flip ten times as slow, and has nothing to
// find in them.
const stride = 13
