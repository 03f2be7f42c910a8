//go:build !race

package raw_test

// stride is the distance between the bits that are flipped: every one.
const stride = 1
