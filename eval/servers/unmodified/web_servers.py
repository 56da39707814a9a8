# SPDX-License-Identifier: GPL-2.0-only
"""Web servers, each with the least configuration that serves files.

This file owns their configuration. All deliver the same files.
"""

from __future__ import annotations

from eval.servers.shapes import Talk, content
from eval.servers.unmodified.server_description import Server, written

PORT, BEHIND = 8080, 8081
SITE = "/tmp/site"
PAGES = (100, 4096)


def http(bytes_: int) -> Talk:
    """One of the files."""
    return Talk(f"--port {PORT}", content(bytes_), path=f"/{bytes_}")


def nginx_configuration(port: int, daemon: str) -> str:
    return f"""\
daemon {daemon}; user nobody nogroup; worker_processes 1; pid /tmp/nginx.pid;
worker_rlimit_nofile 4096; events {{ worker_connections 2048; }}
http {{ access_log off; keepalive_requests 1000000; keepalive_timeout 3600s;
client_body_temp_path /tmp/nginx;
proxy_temp_path /tmp/nginx; fastcgi_temp_path /tmp/nginx; uwsgi_temp_path /tmp/nginx;
scgi_temp_path /tmp/nginx; server {{ listen 127.0.0.1:{port} backlog=1024; root {SITE}; }} }}
"""


NGINX = "nginx -e /tmp/nginx.log -c /tmp/nginx.conf"


def nginx() -> Server:
    return Server(
        name="nginx",
        package="nginx",
        programs=("usr/sbin/nginx",),
        prepare=written(nginx_configuration(PORT, "off"), "/tmp/nginx.conf"),
        argv=tuple(NGINX.split()),
        talk=http,
        loads=(
            "keep8", "keep1", "keep64", "keep512", "close1", "close8", "close64", "keep8-4k",
            "keep8-idle", "keep8-free",
        ),
        requests=512,
        uneven=("close64",),
    )  # fmt: skip


MODULES = "usr/lib/apache2/modules"
APACHE = f"""\
ServerRoot /tmp
ServerName localhost
Listen 127.0.0.1:{PORT}
LoadModule mpm_event_module /{MODULES}/mod_mpm_event.so
LoadModule authz_core_module /{MODULES}/mod_authz_core.so
User nobody
Group nogroup
PidFile /tmp/apache.pid
ErrorLog /tmp/apache.log
DocumentRoot {SITE}
ServerLimit 1
StartServers 1
ThreadLimit 100
ThreadsPerChild 100
MaxRequestWorkers 100
MinSpareThreads 1
MaxSpareThreads 100
AsyncRequestWorkerFactor 40
MaxConnectionsPerChild 0
KeepAlive On
KeepAliveTimeout 3600
MaxKeepAliveRequests 0
"""


def apache() -> Server:
    """With its event MPM, which ends kept connections when all its threads are busy: there are more
    threads than a load has connections."""
    return Server(
        name="apache",
        package="apache2-bin",
        programs=(
            "usr/sbin/apache2",
            *(f"{MODULES}/mod_{name}.so" for name in ("mpm_event", "authz_core")),
            # Which the C library loads when a thread ends: without it the process aborts.
            "lib/x86_64-linux-gnu/libgcc_s.so.1",
        ),
        prepare=written(APACHE, "/tmp/apache.conf"),
        argv=("apache2", "-D", "FOREGROUND", "-f", "/tmp/apache.conf"),
        talk=http,
        loads=("keep8", "keep1", "keep64", "close8", "close64", "keep8-4k"),
        requests=256,
    )


HAPROXY = f"""\
global
  nbthread 1
  maxconn 2000
defaults
  mode http
  timeout connect 60s
  timeout client 600s
  timeout server 600s
frontend all
  bind 127.0.0.1:{PORT}
  default_backend behind
backend behind
  http-reuse always
  server one 127.0.0.1:{BEHIND}
"""


def haproxy() -> Server:
    """In front of nginx, which is not counted."""
    return Server(
        name="haproxy",
        package="haproxy",
        programs=("usr/sbin/haproxy", "usr/sbin/nginx"),
        prepare=written(HAPROXY, "/tmp/haproxy.conf")
        + written(nginx_configuration(BEHIND, "on"), "/tmp/nginx.conf")
        + NGINX,
        argv=("haproxy", "-f", "/tmp/haproxy.conf"),
        talk=http,
        loads=("keep8", "keep1", "keep64", "close8", "close64", "keep8-4k"),
        requests=256,
        uneven=("close64",),
    )


NODE = f"""\
const fs = require("fs"), pages = {{}};
for (const name of {list(PAGES)}) pages["/" + name] = fs.readFileSync("{SITE}/" + name);
require("http").createServer((request, response) => {{
  const page = pages[request.url] || "";
  response.writeHead(page ? 200 : 404, {{ "Content-Length": page.length }});
  response.end(page);
}}).listen({PORT}, "127.0.0.1").keepAliveTimeout = 0;
"""


NODE_LIBRARIES = ("acorn", "acorn-walk", "cjs-module-lexer", "undici")


def node() -> Server:
    """A server of the fewest lines; the files are in its memory."""
    return Server(
        name="node",
        package="nodejs",
        programs=("usr/bin/node",),
        trees=tuple(f"usr/share/nodejs/{name}" for name in NODE_LIBRARIES),
        prepare=written(NODE, "/tmp/server.js"),
        argv=("node", "/tmp/server.js"),
        talk=http,
        loads=("keep8", "keep64", "close8"),
        requests=256,
        ready_limit_s=600,
    )


CADDY = f"""\
{{
  admin off
  auto_https off
}}
:{PORT} {{
  root * {SITE}
  file_server
}}
"""


def caddy() -> Server:
    """Written in Go."""
    return Server(
        name="caddy",
        package="caddy",
        programs=("usr/bin/caddy",),
        prepare=written(CADDY, "/tmp/Caddyfile"),
        argv=("caddy", "run", "--config", "/tmp/Caddyfile", "--adapter", "caddyfile"),
        talk=http,
        loads=("keep8", "keep64", "close8"),
        requests=256,
        ready_limit_s=600,
        uneven=("keep8", "keep64", "close8"),
    )
