#!/usr/bin/env bash
# What a machine with a GPU is asked, stage by stage; README.md beside this says how. In the root of the repository:
#
#   bash tests/card/check.sh [stage …]      by default: facts smoke tests compare speed train sanitizer
set -u
cd "$(dirname "$0")/../.."
here=tests/card
export OUT="${OUT:-card-out}" PYTHONUNBUFFERED=1 PYTHONPATH="$PWD" DRY="${DRY:-}"
python=${PYTHON:-python3}
mkdir -p "$OUT"
began=$SECONDS failed=""

# Runs a command as stage $1 with a limit of $2 seconds, or the one in the environment; its output goes to $OUT/$1.txt.
stage() {
    local name=$1 limit=${1^^} from=$SECONDS status said
    local seconds=${!limit:-$2}
    shift 2
    echo "== $name (at $SECONDS s, at most $seconds s): $*" | tee -a "$OUT/summary.txt"
    timeout -k 5 "$seconds" "$@" > "$OUT/$name.txt" 2>&1
    status=$?
    tail -n 40 "$OUT/$name.txt" | cut -c1-200
    case $status in 0) said=passed ;; 124 | 137) said="CUT OFF" ;; *) said="FAILED ($status)" ;; esac
    echo "-- $name: $said after $((SECONDS - from)) s" | tee -a "$OUT/summary.txt"
    [ $status = 0 ] || failed="$failed $name"
    return $status
}

report() {
    local name=$1 seconds=$2
    shift 2
    stage "$name" "$seconds" "$python" -m tinyvit.bench.gpu_report ${DRY:+--dry-run} --out "$OUT/$name" "$@"
}

facts() { stage facts 60 "$python" $here/facts.py; }
smoke() { stage smoke 100 "$python" $here/smoke.py; }
tests() {  # a warning of a newer NumPy is no failure here
    HYPOTHESIS_PROFILE=few stage tests 170 "$python" -m pytest -q -n 14 --dist worksteal --maxfail 60 --tb=short \
        -o filterwarnings=default -m gpu tests/cuda
}
compare() { report compare 100 --no-tests --no-steps --no-train --compare; }
speed() { report speed 150 --no-tests --no-compare --no-train --steps --precisions bfloat16; }
train() {
    report train 150 --no-tests --no-compare --no-steps --train --precisions bfloat16 ${DATA:+--data-dir "$DATA"} \
        --minutes "$(awk "BEGIN { print (${TRAIN:-150} - 20) / 60 }")"
}
sanitizer() {
    local tool
    tool=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2> /dev/null | tail -n 1)
    [ -n "$tool" ] || { echo "-- sanitizer: there is no compute-sanitizer" | tee -a "$OUT/summary.txt"; return 1; }
    export tool python here
    stage sanitizer 110 bash -c '
        for check in memcheck racecheck synccheck initcheck; do
            { timeout -k 5 95 "$tool" --tool $check --error-exitcode 9 --print-limit 12 "$python" $here/sanitize.py 2>&1 |
                sed "s/^/$check: /"
              echo "$check: ended with ${PIPESTATUS[0]}"; } &
        done
        wait'
    grep -c "ended with 0" "$OUT/sanitizer.txt" | sed 's/$/ of 4 checks found nothing/' | tee -a "$OUT/summary.txt"
}

[ $# -gt 0 ] || set -- facts smoke tests compare speed train sanitizer
for name; do
    "$name" || [[ $name != facts && $name != smoke ]] || [ -n "$DRY" ] || { echo "stopped: see $OUT/$name.txt"; exit 3; }
done
echo "$((SECONDS - began)) s in all;${failed:- nothing} failed" | tee -a "$OUT/summary.txt"
[ -z "$failed" ]
