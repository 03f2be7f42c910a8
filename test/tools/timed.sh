#!/usr/bin/env bash
# timed.sh MAKE PART...: runs make targets one after the other, stops at the first that fails, and prints at the end how long each part took.
set -euo pipefail
make=${1:?usage: timed.sh MAKE PART...}
shift
summary=()
report() {
	echo "== time taken"
	printf '%s\n' "${summary[@]}"
}
for part in "$@"; do
	echo "== $part"
	began=$EPOCHREALTIME
	# shellcheck disable=SC2086 # a part may carry variables: "kill ROUNDS=20"
	status=0 && $make --no-print-directory $part || status=$?
	took=$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.1f", b - a}')
	summary+=("$(printf '%-12s %8s s  %s' "${part%% *}" "$took" "$([ "$status" = 0 ] && echo ok || echo FAILED)")")
	if [ "$status" != 0 ]; then
		report
		exit "$status"
	fi
done
report
