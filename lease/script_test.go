package lease

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestScripts plays the minutes in testdata: a line is a time, a command or question, and what the table says to it.
func TestScripts(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txt")
	if len(files) == 0 {
		t.Fatal("no scripts")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { play(t, file) })
	}
}

func TestCaseK18ReleasedLateAndDeadInTheQueue(t *testing.T) {
	play(t, "testdata/release.txt")
	play(t, "testdata/queue.txt")
}

func play(t *testing.T, file string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var table Table
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line, want, said := strings.Cut(lines.Text(), "=>")
		if !said {
			continue
		}
		fields := strings.Fields(line)
		at, err := time.ParseDuration(fields[0])
		if err != nil {
			t.Fatalf("%s:%d: %v", file, n, err)
		}
		if got := say(&table, at, fields[1:]); got != strings.TrimSpace(want) {
			t.Errorf("%s:%d: %s\n got %s\nwant %s", file, n, strings.TrimSpace(line), got, strings.TrimSpace(want))
		}
	}
}

// say carries out one line.
func say(table *Table, at time.Duration, f []string) string {
	switch f[0] {
	case "observe":
		table.Expire(at)
		i, err := readObserve(table.Query(observeQuestion(f[1])))
		if err != nil || !i.Held {
			return "free"
		}
		return fmt.Sprintf("%s %s", i.Holder, showToken(i.Token))
	case "turn":
		table.Expire(at)
		return []string{"wait", "ask"}[table.Query(turnQuestion(request(f[1])))[1]]
	}
	return show(table.Apply(at, parseLine(f)))
}

func parseLine(f []string) []byte {
	switch f[0] {
	case "epoch":
		n, _ := strconv.ParseUint(f[1], 10, 64)
		return Epoch(n)
	case "acquire":
		ttl, _ := time.ParseDuration(f[4])
		return acquireCommand(f[1], f[2], request(f[3]), ttl, len(f) > 5)
	case "renew":
		var tokens []uint64
		for _, s := range f[1:] {
			tokens = append(tokens, token(s))
		}
		return renewCommand(tokens)
	case "release", "done":
		return releaseCommand(f[1], token(f[2]), f[0] == "done")
	case "withdraw":
		return withdrawCommand(f[1], request(f[2]))
	}
	panic("no such line: " + strings.Join(f, " "))
}

func request(s string) (r Request) {
	copy(r[:], s)
	return r
}

func token(s string) uint64 {
	e, c, _ := strings.Cut(s, ".")
	epoch, _ := strconv.ParseUint(e, 10, 64)
	count, _ := strconv.ParseUint(c, 10, 64)
	return epoch<<tokenBits | count
}

func showToken(t uint64) string { return fmt.Sprintf("%d.%d", t>>tokenBits, t&(1<<tokenBits-1)) }

// show says a reply as the scripts do.
func show(reply []byte) string {
	r := reader{rest: reply[1:]}
	switch reply[0] {
	case codeGranted:
		return "granted " + showToken(r.uint64())
	case codeWaiting:
		n, _ := binary.Uvarint(reply[1:])
		return fmt.Sprintf("waiting %d", n)
	case codeTaken:
		token := showToken(r.uint64())
		return fmt.Sprintf("taken %s %s", token, r.text(MaxHolder))
	case codeRenewed:
		var out []string
		for _, b := range reply[1:] {
			out = append(out, []string{"lost", "kept"}[b])
		}
		return strings.Join(out, " ")
	}
	return map[byte]string{
		codeDone: "done", codeOver: "over", codeStale: "stale", codeWrong: "wrong", codeFull: "full", codeNoEpoch: "no epoch",
	}[reply[0]]
}
