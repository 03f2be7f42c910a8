//go:build !unix

package raw

// descriptorLimit is how many files the chains of one store keep open.
func descriptorLimit() int { return 512 }
