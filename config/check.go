package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stream-arrow/twgd/unit"
)

// complete fills in the defaults that depend on other keys. A required key that is missing has been reported by now.
func (d *decoder) complete(cfg *Config) {
	d.completeNode(&cfg.Node)
	d.completeCluster(&cfg.Cluster)
	for i := range cfg.Streams {
		d.completeStream(&cfg.Streams[i], fmt.Sprintf("streams[%d]", i), cfg.Node.DataDir)
	}
}

func (d *decoder) given(path string) bool {
	_, ok := d.at[path]
	return ok
}

func (d *decoder) completeNode(n *Node) {
	if d.given("node.id") {
		return
	}
	host, err := os.Hostname()
	if err != nil || !specOf(Parts{}).child("node").child("id").pattern.MatchString(host) {
		d.problem("node.id", Problem{Text: "this key is missing, and the host name cannot stand for it"})
		return
	}
	n.ID = host
}

func (d *decoder) completeStream(s *Stream, path, dataDir string) {
	if !d.given(path + ".raw.flush.age") {
		s.Raw.Flush.Age = flushAge(s.Raw.To)
	}
	if !d.given(path + ".quarantine.to") {
		d.completeQuarantine(s, path, dataDir)
	}
	for j := range s.Sinks {
		if k := &s.Sinks[j]; k.Options != nil && !d.given(fmt.Sprintf("%s.sinks[%d].deadline", path, j)) {
			k.Deadline = deadline(k.Options.RollAge())
		}
	}
}

func (d *decoder) completeQuarantine(s *Stream, path, dataDir string) {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		d.problem(path+".quarantine.to", Problem{Text: "this key is missing, and node.data_dir cannot stand for it"})
		return
	}
	s.Quarantine.To = unit.Directory(filepath.Join(dir, "quarantine"))
	if d.hidden["node.data_dir"] {
		d.hidden[path+".quarantine.to"] = true
	}
}

func flushAge(raw unit.Location) unit.Duration {
	if raw.Scheme() == "s3" {
		return unit.Duration(5 * time.Second)
	}
	return unit.Duration(100 * time.Millisecond)
}

func deadline(roll time.Duration) unit.Duration {
	if roll > 0 {
		return unit.Duration(5 * roll)
	}
	return unit.Duration(time.Minute)
}

// check finds what a single key does not show.
func (d *decoder) check(cfg *Config) {
	d.checkCluster(cfg)
	d.checkRaw(cfg)
	for i := range cfg.Streams {
		path := fmt.Sprintf("streams[%d]", i)
		d.checkStream(&cfg.Streams[i], path)
		d.checkDedup(cfg, &cfg.Streams[i], path)
	}
	d.checkNames(cfg)
	d.checkPlaces(cfg)
	d.checkReads(cfg)
}

func (d *decoder) checkStream(s *Stream, path string) {
	if s.Source.Options != nil {
		s.Source.Options.Check(d.reporter(path + ".source." + s.Source.Kind))
	}
	for j := range s.Sinks {
		d.checkSink(&s.Sinks[j], fmt.Sprintf("%s.sinks[%d]", path, j))
	}
}

func (d *decoder) checkSink(k *Sink, path string) {
	if k.Options == nil {
		return
	}
	k.Options.Check(d.reporter(path + "." + k.Kind))
	if age := k.Options.RollAge(); age > 0 && time.Duration(k.Deadline) <= 2*age {
		text := fmt.Sprintf("a file may be open for roll.age (%s) and must be stored well before the deadline of its first record: the deadline is more than twice that age", unit.Duration(age))
		d.problem(path+".deadline", Problem{Text: text, Found: d.foundAt(path+".deadline", k.Deadline.String())})
	}
}

func (d *decoder) foundAt(path, value string) string {
	if d.hidden[path] {
		return hidden
	}
	return show(value)
}

// reporter notes the mistakes that a kind's own check finds.
func (d *decoder) reporter(path string) Report {
	return func(key, found, problem string) {
		p := Problem{Text: problem}
		if found != "" {
			p.Found = d.foundAt(join(path, key), found)
		}
		d.problem(join(path, key), p)
	}
}

// checkNames finds streams, and sinks of one stream, with one name.
func (d *decoder) checkNames(cfg *Config) {
	streams := map[string]string{}
	for i, s := range cfg.Streams {
		path := fmt.Sprintf("streams[%d]", i)
		d.once(streams, s.Name, path+".name", "two streams have one name")
		sinks := map[string]string{}
		for j, k := range s.Sinks {
			d.once(sinks, k.Name, fmt.Sprintf("%s.sinks[%d].name", path, j), "two sinks of a stream have one name")
		}
	}
}

// once notes a problem where key was seen at another path before.
func (d *decoder) once(seen map[string]string, key, path, problem string) {
	if first, twice := seen[key]; twice && key != "" {
		d.problem(path, Problem{Text: fmt.Sprintf("%s: %s, in line %d, has it too", problem, first, d.place(first).line)})
	} else {
		seen[key] = path
	}
}

// checkPlaces finds two writers of one place: backups, raw, quarantine and sinks, of all streams. A stream whose name is wrong has no
// place yet.
func (d *decoder) checkPlaces(cfg *Config) {
	seen := map[string]string{}
	if b := cfg.Cluster.Backup.To; b != "" && cfg.Cluster.Name != "" && cfg.Cluster.Size != 0 {
		d.claim(seen, string(b.Below(cfg.Cluster.Name)), "cluster.backup.to")
	}
	for i, s := range cfg.Streams {
		path := fmt.Sprintf("streams[%d]", i)
		if s.Name == "" || d.bad[path+".name"] {
			continue
		}
		if s.Raw.To != "" {
			d.claim(seen, string(s.Raw.To.Below(s.Name)), path+".raw.to")
		}
		d.claim(seen, string(s.Quarantine.To.Below(s.Name)), path+".quarantine.to")
		for j, k := range s.Sinks {
			if k.Options != nil {
				d.claim(seen, k.Options.Target(s.Name), fmt.Sprintf("%s.sinks[%d].%s", path, j, k.Kind))
			}
		}
	}
}

func (d *decoder) claim(seen map[string]string, target, path string) {
	if target != "" {
		d.once(seen, place(target), path, "two things are written to one place, where neither could tell its own from the other's")
	}
}

// reads is what one stream consumes.
type reads struct {
	path, group, pattern string
	servers, topics      []string
}

// checkReads finds two streams in one group that want one topic: the broker would give each partition to only one of them.
func (d *decoder) checkReads(cfg *Config) {
	var before []reads
	for i, s := range cfg.Streams {
		if s.Source.Options == nil {
			continue
		}
		r := reads{path: fmt.Sprintf("streams[%d].source.%s", i, s.Source.Kind)}
		r.servers, r.group, r.topics, r.pattern = s.Source.Options.Reads()
		for _, b := range before {
			d.checkCommon(b, r)
		}
		before = append(before, r)
	}
}

func (d *decoder) checkCommon(a, b reads) {
	if a.group == "" || a.group != b.group || !slices.ContainsFunc(a.servers, func(s string) bool { return slices.Contains(b.servers, s) }) {
		return
	}
	topic, shared := a.common(b)
	if !shared {
		return
	}
	if d.anyHidden(a.path) || d.anyHidden(b.path) {
		topic = "both take the same topics"
	}
	text := fmt.Sprintf("%s, in line %d, is in this group too, and %s: the broker would give each partition to only one of them", a.path, d.place(a.path).line, topic)
	d.problem(b.path+".group", Problem{Text: text})
}

// anyHidden reports whether a secret stands below path.
func (d *decoder) anyHidden(path string) bool {
	for p := range d.hidden {
		if strings.HasPrefix(p, path) {
			return true
		}
	}
	return false
}

// common is a topic that both take.
func (a reads) common(b reads) (what string, shared bool) {
	for _, t := range a.topics {
		if slices.Contains(b.topics, t) || matches(b.pattern, t) {
			return "both take topic " + show(t), true
		}
	}
	for _, t := range b.topics {
		if matches(a.pattern, t) {
			return "both take topic " + show(t), true
		}
	}
	if a.pattern == "" || b.pattern == "" {
		return "", false
	}
	return overlap(a.pattern, b.pattern)
}
