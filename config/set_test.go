package config

import (
	"slices"
	"strings"
	"testing"
)

func TestSetStandsAboveTheFile(t *testing.T) {
	cfg, err := Load([]byte("node: {id: a}\nstreams: []\ncluster: {name: prod, size: 1, join: [old:1]}\n"), "f", noEnv, Parts{},
		Set{"node.id", "b"}, Set{"cluster.join", []string{"new:2"}}, Set{"cluster.secret", "a secret with ${braces} in it"})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Node.ID != "b" || !slices.Equal(cfg.Cluster.Join, []string{"new:2"}) || cfg.Cluster.Secret != "a secret with ${braces} in it" {
		t.Errorf("got %q, %q, %q", cfg.Node.ID, cfg.Cluster.Join, cfg.Cluster.Secret)
	}
}

func TestSetMakesWhatTheFileLacks(t *testing.T) {
	cfg, err := Load([]byte("node: {id: a}\nstreams: []\ncluster: {name: prod, size: 1}\n"), "f", noEnv, Parts{}, Set{"node.log.level", "debug"})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Node.Log.Level != "debug" {
		t.Errorf("the level is %q", cfg.Node.Log.Level)
	}
}

func TestSetLeavesMistakesOfTheFileToTheDecoder(t *testing.T) {
	_, err := Load([]byte("node: 7\nstreams: []\n"), "f", noEnv, Parts{}, Set{"node.id", "b"})
	if err == nil || !strings.Contains(err.Error(), "node") {
		t.Errorf("got %v", err)
	}
}

func noEnv(string) (string, bool) { return "", false }
