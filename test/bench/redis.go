package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stream-arrow/twgd/test/servers"
)

// measureRedis claims the same contents as SET key value NX PX in pipelines, with a log that is synced before it answers. Where there is no
// Redis the section says so and goes on.
func measureRedis(ctx context.Context, b *bench) (err error) {
	dir, err := b.scratch()
	if err != nil {
		return err
	}
	s, err := servers.Redis(ctx, dir)
	if err != nil {
		b.say("no Redis to compare with: %v", err)
		return nil
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var rates [2][2]loads
	var bytes []float64
	for range b.runs {
		for i, rows := range claimBatches {
			for j, crowd := range claimCrowds {
				l, err := pipelines(s.Address(), rows, crowd, b.claimSpan())
				if err != nil {
					return fmt.Errorf("redis: %w", err)
				}
				rates[i][j] = append(rates[i][j], l)
			}
		}
		size, err := redisEntry(s.Address())
		if err != nil {
			return fmt.Errorf("redis: %w", err)
		}
		bytes = append(bytes, size)
	}
	for i, rows := range claimBatches {
		for j, crowd := range claimCrowds {
			name := fmt.Sprintf("redis, %d rows a pipeline, %d at once", rows, crowd)
			b.report.add(name+", p50", "ms", rates[i][j].percentile(50))
			b.report.add(name+", p99", "ms", rates[i][j].percentile(99))
			b.report.add(name, "hashes/s", rates[i][j].rates())
		}
	}
	b.report.add("redis, memory of an entry", "bytes", bytes)
	return nil
}

// redisConn is a connection to Redis.
type redisConn struct {
	net.Conn
	in  *bufio.Reader
	out *bufio.Writer
}

func dialRedis(address string) (*redisConn, error) {
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &redisConn{c, bufio.NewReaderSize(c, 64<<10), bufio.NewWriterSize(c, 256<<10)}, nil
}

// send writes one command.
func (c *redisConn) send(args ...[]byte) {
	fmt.Fprintf(c.out, "*%d\r\n", len(args))
	for _, a := range args {
		c.out.WriteString("$" + strconv.Itoa(len(a)) + "\r\n")
		c.out.Write(a)
		c.out.WriteString("\r\n")
	}
}

// reply reads one answer.
func (c *redisConn) reply() (string, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	switch {
	case strings.HasPrefix(line, "-"):
		return "", errors.New(line[1:])
	case strings.HasPrefix(line, "$") && line != "$-1":
		n, err := strconv.Atoi(line[1:])
		if err != nil {
			return "", err
		}
		body := make([]byte, n+2)
		_, err = io.ReadFull(c.in, body)
		return string(body[:n]), err
	}
	return line, nil
}

// claim sends one pipeline and reads its answers.
func (c *redisConn) claim(rows [][24]byte) error {
	set, nx, px, window := []byte("SET"), []byte("NX"), []byte("PX"), []byte(strconv.FormatInt(claimWindow.Milliseconds(), 10))
	go func() {
		for i := range rows {
			c.send(set, rows[i][:16], rows[i][16:], nx, px, window)
		}
		c.out.Flush()
	}()
	for range rows {
		switch answer, err := c.reply(); {
		case err != nil:
			return err
		case answer != "+OK":
			return fmt.Errorf("a new content is answered %q", answer)
		}
	}
	return nil
}

// pipelines lets a crowd claim new contents for a while.
func pipelines(address string, rows, crowd int, span time.Duration) (load, error) {
	counted := time.Now().Add(warmUp)
	end := counted.Add(span)
	took := make([][]float64, crowd)
	var first firstError
	var all sync.WaitGroup
	for i := range crowd {
		all.Go(func() {
			c, err := dialRedis(address)
			if err != nil {
				first.note(err)
				return
			}
			defer c.Close()
			batch := make([][24]byte, rows)
			for time.Now().Before(end) {
				fillRows(batch)
				asked := time.Now()
				if err := c.claim(batch); err != nil {
					first.note(err)
					return
				}
				if now := time.Now(); now.After(counted) && now.Before(end) {
					took[i] = append(took[i], float64(now.Sub(asked).Microseconds())/1000)
				}
			}
		})
	}
	all.Wait()
	var l load
	for _, ms := range took {
		l.ms = append(l.ms, ms...)
	}
	l.rate = float64(len(l.ms)*rows) / span.Seconds()
	return l, first.get()
}

// redisEntry is what an entry takes in the server's memory, by its own account.
func redisEntry(address string) (float64, error) {
	c, err := dialRedis(address)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	c.send([]byte("DBSIZE"))
	c.send([]byte("INFO"), []byte("memory"))
	if err := c.out.Flush(); err != nil {
		return 0, err
	}
	size, err := c.reply()
	if err != nil {
		return 0, err
	}
	info, err := c.reply()
	if err != nil {
		return 0, err
	}
	entries, err := strconv.ParseFloat(strings.TrimPrefix(size, ":"), 64)
	for line := range strings.Lines(info) {
		if used, ok := strings.CutPrefix(line, "used_memory:"); ok {
			bytes, err := strconv.ParseFloat(strings.TrimSpace(used), 64)
			return bytes / entries, err
		}
	}
	return 0, errors.Join(err, errors.New("INFO memory tells no used_memory"))
}
