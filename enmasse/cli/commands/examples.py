"""Examples of commands, which `enmasse help COMMAND` shows, and the first ones `--help`: line and remark. Tests check
that each is valid."""

from __future__ import annotations

from collections.abc import Sequence

EXAMPLES: dict[str, list[tuple[str, str]]] = {
    "": [
        ("enmasse up", "run the suite"),
        ("enmasse status --wait 60", "wait until it is ready"),
        ("enmasse send myqueue hello", "send a message"),
        ("enmasse receive myqueue --count 1", "receive it"),
    ],
    "init": [("enmasse init ./config", "then: enmasse up --config ./config --data ./data")],
    "up": [
        ("enmasse up", "the configuration is in ~/.config/enmasse"),
        ("enmasse up --config ./config --data ./data --port-offset 100", ""),
        ("enmasse up --tls auto --listen 0.0.0.0", "clients of other machines, with users and TLS"),
    ],
    "down": [("enmasse down", "")],
    "reload": [("enmasse reload", "after an edit of up.json in the configuration folder")],
    "status": [
        ("enmasse status", ""),
        ("enmasse status --wait 60", "until the files are applied and everything is ready"),
        ("enmasse status --watch", "until Ctrl-C"),
        ("enmasse status --json", ""),
    ],
    "logs": [
        ("enmasse logs", "the last lines of all components"),
        ("enmasse logs -f router", ""),
        ("enmasse logs audit --lines 20", ""),
    ],
    "top": [("enmasse top", "until q"), ("enmasse top --once --json", "")],
    "events": [
        ("enmasse events --address 'orders/*'", ""),
        ("enmasse events -f --kind 'client.*'", "new ones too"),
        ("enmasse events --all-spaces", "those of all address spaces"),
    ],
    "context": [
        ("enmasse context add prod https://messaging.example.com --user alice", ""),
        ("enmasse context use prod", "commands work there from now on"),
        ("enmasse context use local", "and here again"),
    ],
    "space": [
        ("enmasse space add shop --plan small --host shop.example.com", ""),
        ("enmasse space show shop", "what it uses of its plan"),
    ],
    "plan": [("enmasse plan list", ""), ("enmasse plan show small", "its limits")],
    "scale": [("enmasse scale gateways 2", "")],
    "restart": [
        ("enmasse restart small-persisted-queue-0", "a broker"),
        ("enmasse restart router", "one router after the other"),
    ],
    "address": [
        ("enmasse address list --match 'orders*' --sort -messages --limit 10", ""),
        ("enmasse address list --not-ready", ""),
        ("enmasse address show orders", ""),
        ("enmasse address add orders --type queue --flavor small-persisted-queue --set deadletter=dead", ""),
        ("enmasse address set orders maxSize=1Gi fullPolicy=FAIL", ""),
        ("enmasse address set orders deadletter=", "removes the key"),
        ("enmasse address remove orders", "kept until it is empty"),
        ("enmasse address remove orders --force", "deletes its messages"),
    ],
    "flavor": [
        ("enmasse flavor list", ""),
        ("enmasse flavor show small-persisted-queue", ""),
        ("enmasse flavor add big --template queue-persisted STORAGE_CAPACITY=50Gi BROKERS=2", ""),
        ("enmasse flavor set big BROKERS=3", ""),
        ("enmasse flavor remove big", ""),
    ],
    "config": [("enmasse config check ./config", "without applying it")],
    "user": [
        ("enmasse user add alice", "asks for a password"),
        ("enmasse user allow alice send,recv 'orders/#'", ""),
        ("enmasse user check alice send orders/eu", ""),
        ("enmasse user revoke alice send 'orders/#'", "what `user show alice` has so"),
        ("enmasse user limit alice connections=5", "at all routers and gateways together"),
    ],
    "token": [
        ("enmasse token add ci --user alice --days 90 --output ci.token", "for a program, by REST alone"),
        ("enmasse token list", ""),
        ("enmasse token remove ci --user alice", ""),
    ],
    "connection": [
        ("enmasse connection list --match '10.1.*' --sort since", ""),
        ("enmasse connection list --inside", "those of the suite's own processes"),
        ("enmasse connection list --refused", "which clients were refused or closed, and why"),
        ("enmasse connection show router-0/7", ""),
        ("enmasse connection close router-0/7", "the client may connect again"),
    ],
    "subscription": [
        ("enmasse subscription list", ""),
        ("enmasse subscription remove mqtt.thermo --force", "with its messages"),
    ],
    "retained": [("enmasse retained list 'home/#'", ""), ("enmasse retained remove home/kitchen", "")],
    "mqtt": [
        ("enmasse mqtt clients --all", ""),
        ("enmasse mqtt disconnect thermo", ""),
        ("enmasse mqtt wills --match 'home/*'", "what is published when a client is lost"),
    ],
    "send": [
        ("enmasse send orders '{\"id\": 7}' --content-type application/json", ""),
        ("enmasse send orders --file picture.png", ""),
        ("enmasse send orders --count 10 --content-type application/json", '{"sequence": 1} and so on'),
        ("tail -f file | enmasse send orders", "a message a line"),
        ("enmasse receive one --json --timeout 1 | enmasse send other --json", "the same messages"),
    ],
    "receive": [
        ("enmasse receive orders --count 10 --timeout 5", ""),
        ("enmasse receive orders --browse --json", "look, and leave them there"),
        ("enmasse receive orders --count 1 --raw > picture.png", "what `send --file` has sent"),
        ("enmasse receive orders --reject --count 1", "to the dead-letter queue"),
        ("enmasse receive news --durable mine --container me", "a durable subscription"),
    ],
    "request": [("enmasse request prices apples --timeout 5", "")],
    "reply": [("enmasse reply prices '1.20'", "the same to each request"), ("enmasse reply prices", "an echo")],
    "publish": [
        ("enmasse publish home/kitchen 21.5 --retain", ""),
        ("tail -f file | enmasse publish home/log --qos 0", "a message a line"),
    ],
    "subscribe": [
        ("enmasse subscribe 'home/#' -v", "with topics"),
        ("enmasse subscribe orders -i shop-1 --session-expiry 3600", "continues later with what arrived meanwhile"),
        ("enmasse subscribe orders -i shop-1 --unsubscribe", "prints what waits, then deletes the session"),
    ],
    "spark": [
        ("enmasse spark run pipeline.toml", "until Ctrl-C"),
        ("enmasse spark submit job.py", "in the background"),
        ("enmasse spark status", ""),
        ("enmasse spark chart pipeline.toml windows windows.png --device boiler", ""),
    ],
    "backup": [("enmasse backup /backups/monday", "the suite may run")],
    "restore": [
        ("enmasse restore /backups/monday", "into the default folders"),
        ("enmasse restore /backups/monday --config ./config --data ./data", ""),
    ],
    "deploy": [("enmasse deploy --namespace messaging --set image.repository=registry.example.com/team", "")],
    "bench": [
        ("enmasse bench orders --seconds 5", "the address must be empty"),
        ("enmasse bench orders --rate 500 --producers 4 --consumers 2", "does it keep up, and how fast"),
    ],
    "version": [("enmasse version", "")],
    "help": [("enmasse help address add", "")],
}
IN_HELP = 2
"""Examples that `--help` shows."""


def examples_of(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the examples of a command; of one without its own, those of its group that use it."""
    of_group = EXAMPLES.get(words[0], []) if words else EXAMPLES[""]
    begin = " ".join(["enmasse", *words])
    return [each for each in of_group if not words or f"{each[0]} ".find(f"{begin} ") >= 0]


def shown(examples: Sequence[tuple[str, str]]) -> str:
    """Return the lines of examples, with their remarks in one column; empty without examples."""
    if not examples:
        return ""
    width = min(60, max(len(line) for line, _ in examples))
    lines = (f"  {line:{width}}  # {remark}" if remark else f"  {line}" for line, remark in examples)
    return "\n".join(["Examples:", *lines])
