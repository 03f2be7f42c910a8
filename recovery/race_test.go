//go:build race

package recovery

const racing = true
