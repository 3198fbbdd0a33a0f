#!/usr/bin/env bash
# Debian packages that the end-to-end tests use. Without root or apt the tests that need them skip and say why.
set -euo pipefail
declare -A package=([chromium]=chromium [prometheus]=prometheus)
missing=()
compgen -G "/usr/lib/postgresql/*/bin/postgres" >/dev/null || missing+=(postgresql)
for program in "${!package[@]}"; do
  command -v "$program" >/dev/null 2>&1 || missing+=("${package[$program]}")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "• not installed: ${missing[*]} (needs root and apt-get); the tests that use them will skip"
  exit 0
fi
echo "• installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" fonts-dejavu-core >/dev/null
