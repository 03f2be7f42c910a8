#!/usr/bin/env bash
# fuzz.sh TIME: runs every Fuzz target of the module for TIME (as go test -fuzztime takes it), one after the other.
set -euo pipefail
time=${1:?usage: fuzz.sh TIME}
go=${GO:-go}
# go test -list prints the names of a package's targets and then a line "ok <package>".
listing=$("$go" test -list '^Fuzz' ./...) || { printf '%s\n' "$listing" >&2; exit 1; }
targets=$(awk '/^Fuzz/ {names[++n] = $1} /^ok/ {for (i = 1; i <= n; i++) print $2, names[i]; n = 0}' <<<"$listing")
if [ -z "$targets" ]; then
	echo "fuzz: no package has a Fuzz target"
	exit 0
fi
said=$(mktemp)
trap 'rm -f "$said"' EXIT

# overdue: Go before 1.27 may report the end of the time itself as a failure (go.dev/issue/75804). A real one has written its input, or
# says something else.
overdue() { grep -qx '    context deadline exceeded' "$said" && ! grep -qE 'Failing input|panic|fuzzing process' "$said"; }

while read -r package name; do
	echo "fuzz: $name for $time"
	"$go" test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "$package" 2>&1 | tee "$said" || overdue || exit 1
done <<<"$targets"
