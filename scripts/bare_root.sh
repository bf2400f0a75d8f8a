#!/bin/sh
# From a bare Debian root with Python only to the first answer of the gateway, timed.
#
#   scripts/bare_root.sh [RUNS]
#
# Needs root, mmdebstrap, and both wheels in dist/ (make wheel). SUITE names the Debian release, ROOT_TAR a root that
# mmdebstrap made before, PIP_CONF a pip.conf for the root. Every run starts from the same root; the time
# is from `pip install` to the first answer, without pip's cache.
set -eu
runs=${1:-1}
wheels=$(ls "$PWD"/dist/mild_learn-*.whl "$PWD"/dist/mild_gateway-*.whl)
folder=$(mktemp -d)
root=$folder/root
trap 'umount "$root/proc" 2> /dev/null || true; rm -rf --one-file-system "$folder"' EXIT

tar=${ROOT_TAR:-$folder/root.tar}
[ -e "$tar" ] || mmdebstrap --quiet --variant=minbase --include=python3,python3-venv,ca-certificates \
    "${SUITE:-trixie}" "$tar"

cat > "$folder/first_answer.sh" << 'SCRIPT'
set -eu
cd /tmp
python3 -m venv app
app/bin/pip install --quiet --no-cache-dir --find-links /tmp "$(ls /tmp/mild_learn-*.whl)[gateway]"
echo "installed after $(($(date +%s) - START)) s"
app/bin/mild serve --demo --port "$PORT" > served 2>&1 &
gateway=$!
trap 'kill $gateway; wait $gateway || true' EXIT
python3 - << 'PYTHON'
import json, os, time, urllib.request
body = {"model": "mild", "messages": [{"role": "user", "content": "What is 17 * 23?"}]}
url = f"http://127.0.0.1:{os.environ['PORT']}/v1/chat/completions"
request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
for attempt in range(1200):
    try:
        answer = json.load(urllib.request.urlopen(request, timeout=60))
        break
    except OSError:
        time.sleep(0.1)
else:
    raise SystemExit("no answer; the log of the gateway is /tmp/served")
print(answer["model"], answer["choices"][0]["message"]["content"])
PYTHON
echo "first answer after $(($(date +%s) - START)) s; processor time of the shell and of what it ran:"
times
SCRIPT

for run in $(seq "$runs"); do
    rm -rf --one-file-system "$root"
    mkdir "$root"
    tar --extract --file "$tar" --directory "$root" --exclude './dev/*'
    # shellcheck disable=SC2086  # two paths
    cp $wheels "$folder/first_answer.sh" "$root/tmp/"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    # The certificates that this machine trusts.
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    [ -z "${PIP_CONF:-}" ] || cp "$PIP_CONF" "$root/etc/pip.conf"
    mknod -m 666 "$root/dev/null" c 1 3
    mknod -m 666 "$root/dev/urandom" c 1 9
    mount -t proc proc "$root/proc"
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin PORT="${PORT:-6465}" START="$(date +%s)" \
        ${HTTPS_PROXY:+HTTPS_PROXY="$HTTPS_PROXY"} chroot "$root" sh /tmp/first_answer.sh
    umount "$root/proc"
    echo "installed: $(du -sm "$root/tmp/app" | cut -f1) MB"
done
