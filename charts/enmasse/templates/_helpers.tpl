{{/* Name of what belongs to a component: RELEASE-COMPONENT. Arguments: root, component. */}}
{{- define "enmasse.name" -}}
{{- printf "%s-%s" .root.Release.Name .component -}}
{{- end }}

{{- define "enmasse.selector" -}}
app.kubernetes.io/part-of: enmasse
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "enmasse.labels" -}}
{{ include "enmasse.selector" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* Arguments: root, values (of the component), image (its name in the suite). */}}
{{- define "enmasse.image" -}}
{{- .values.image | default (printf "%s/%s:%s" .root.Values.image.repository .image (.root.Values.image.tag | default .root.Chart.AppVersion)) -}}
{{- end }}

{{- define "enmasse.openshift" -}}
{{- if or (eq (toString .Values.openshift) "true") (and (eq (toString .Values.openshift) "auto") (.Capabilities.APIVersions.Has "security.openshift.io/v1")) -}}true{{- end -}}
{{- end }}

{{/* Security context of a pod. OpenShift chooses uid and group of volumes; elsewhere the images' group 0 has them.
Arguments: root, user (optional). */}}
{{- define "enmasse.podSecurityContext" -}}
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- if not (include "enmasse.openshift" .root) }}
fsGroup: {{ .user | default 0 }}
fsGroupChangePolicy: OnRootMismatch
{{- with .user }}
runAsUser: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "enmasse.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "enmasse.tlsSecret" -}}
{{- .Values.tls.existingSecret | default (printf "%s-tls" .Release.Name) -}}
{{- end }}

{{/* Where pods are to run. Without a wish, replicas of a component avoid each other's node. Arguments: root, component, values. */}}
{{- define "enmasse.scheduling" -}}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
affinity:
{{- if .values.affinity }}
{{- toYaml .values.affinity | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "enmasse.selector" . | nindent 14 }}
{{- end }}
{{- end }}

{{/* Probes of a service. */}}
{{- define "enmasse.probes" -}}
# A start takes seconds, on a node that starts many pods a minute.
startupProbe:
  httpGet: {path: /livez, port: health}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 90
livenessProbe:
  httpGet: {path: /livez, port: health}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 2
  timeoutSeconds: 6
  failureThreshold: 2
{{- end }}

{{/* The pod of a service. Arguments: root, component (with hyphens), values, settings (JSON text); optional: image (default:
component), token (it may use the API), tls (it has the certificate), ports (name → port), secret (its settings are in a
Secret), users (it has users.json), redis (it has the password of Redis), webhooks (Secret with them), environmentSecret (Secret whose keys are
variables of its environment), drain (seconds between its removal from Services and its end), leave
(seconds that it may take to hand its clients on), files (name → text, beside the settings),
initContainers, command, probes (default: those of a service). */}}
{{- define "enmasse.pod" -}}
{{- $name := include "enmasse.name" . -}}
metadata:
  labels:
    {{- include "enmasse.selector" . | nindent 4 }}
    {{- with .values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    checksum/settings: {{ print .settings (.files | toJson) | sha256sum }}
    {{- with .values.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  serviceAccountName: {{ $name }}
  automountServiceAccountToken: {{ .token | default false }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ add 30 (.leave | default 0) }}
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  securityContext: {{- include "enmasse.podSecurityContext" . | nindent 4 }}
  {{- include "enmasse.scheduling" . | nindent 2 }}
  {{- with .initContainers }}
  initContainers: {{- . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .component }}
      image: {{ include "enmasse.image" (dict "root" .root "values" .values "image" (.image | default .component)) }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      {{- with .command }}
      command: {{- toYaml . | nindent 8 }}
      {{- end }}
      env:
        - name: ENMASSE_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
      {{- with .environmentSecret }}
      envFrom:
        - secretRef: {name: {{ . }}}
      {{- end }}
      ports:
        - {name: health, containerPort: 8080}
        {{- range $port, $number := .ports }}
        - {name: {{ $port }}, containerPort: {{ $number }}{{ with $.protocol }}, protocol: {{ . }}{{ end }}}
        {{- end }}
      {{- .probes | default (include "enmasse.probes" .) | nindent 6 }}
      {{- with .drain }}
      lifecycle: {preStop: {sleep: {seconds: {{ . }}}}}
      {{- end }}
      resources: {{- toYaml .values.resources | nindent 8 }}
      securityContext: {{- include "enmasse.securityContext" . | nindent 8 }}
      volumeMounts:
        - {name: settings, mountPath: /etc/enmasse, readOnly: true}
        - {name: state, mountPath: /var/lib/enmasse}
        - {name: tmp, mountPath: /tmp}
        {{- if .tls }}
        - {name: tls, mountPath: /etc/enmasse-tls, readOnly: true}
        {{- end }}
        {{- if .authority }}
        - {name: authority, mountPath: /etc/enmasse-authority, readOnly: true}
        {{- end }}
        {{- if .users }}
        - {name: users, mountPath: /etc/enmasse-users, readOnly: true}
        {{- range .root.Values.users.secrets }}
        - {name: users-{{ replace "." "-" . }}, mountPath: /etc/enmasse-more-users/{{ . }}, readOnly: true}
        {{- end }}
        {{- end }}
        {{- if .redis }}
        - {name: redis, mountPath: /etc/enmasse-redis, readOnly: true}
        {{- end }}
        {{- if .webhooks }}
        - {name: webhooks, mountPath: /etc/enmasse-webhooks, readOnly: true}
        {{- end }}
        {{- if include "enmasse.isProcess" . }}
        - {name: identity, mountPath: /etc/enmasse-identity, readOnly: true}
        {{- end }}
  volumes:
    - name: settings
      {{- if .secret }}
      secret: {secretName: {{ $name }}}
      {{- else }}
      configMap: {name: {{ $name }}}
      {{- end }}
    - {name: state, emptyDir: {}}
    - {name: tmp, emptyDir: {}}
    {{- if .tls }}
    - name: tls
      secret:
        secretName: {{ include "enmasse.tlsSecret" .root }}
        items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
    {{- end }}
    {{- if .authority }}
    - name: authority
      secret: {secretName: {{ include "enmasse.tlsSecret" .root }}, optional: true, items: [{key: ca.crt, path: ca.crt}]}
    {{- end }}
    {{- if .users }}
    - name: users
      secret: {secretName: {{ .root.Release.Name }}-users, optional: true}
    {{- range .root.Values.users.secrets }}
    - name: users-{{ replace "." "-" . }}
      secret: {secretName: {{ . }}, optional: true}
    {{- end }}
    {{- end }}
    {{- if .redis }}
    - name: redis
      secret: {secretName: {{ .root.Release.Name }}-redis, items: [{key: password, path: password}]}
    {{- end }}
    {{- with .webhooks }}
    - name: webhooks
      # Not readable for all users: the console refuses a file that is.
      secret: {secretName: {{ . }}, defaultMode: 0440, items: [{key: webhooks.json, path: webhooks.json}]}
    {{- end }}
    {{- if include "enmasse.isProcess" . }}
    - name: identity
      secret: {secretName: {{ include "enmasse.identitySecret" . }}}
    {{- end }}
{{- end }}

{{/* What every service has beside its pods: settings and a ServiceAccount. Arguments as those of enmasse.pod. */}}
{{- define "enmasse.base" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "enmasse.name" . }}
  labels: {{- include "enmasse.labels" . | nindent 4 }}
automountServiceAccountToken: false
---
apiVersion: v1
kind: {{ ternary "Secret" "ConfigMap" (.secret | default false) }}
metadata:
  name: {{ include "enmasse.name" . }}
  labels: {{- include "enmasse.labels" . | nindent 4 }}
{{ ternary "stringData" "data" (.secret | default false) }}:
  settings.json: |
    {{- .settings | nindent 4 }}
  {{- range $file, $text := .files }}
  {{ $file }}: |
    {{- $text | nindent 4 }}
  {{- end }}
{{- end }}

{{/* A Deployment. Arguments: those of enmasse.pod, and single (one pod at a time, the old one ends first). */}}
{{- define "enmasse.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "enmasse.name" . }}
  labels: {{- include "enmasse.labels" . | nindent 4 }}
spec:
  {{- include "enmasse.replicas" . | nindent 2 }}
  revisionHistoryLimit: 3
  selector:
    matchLabels: {{- include "enmasse.selector" . | nindent 6 }}
  strategy:
    {{- if .single }}
    type: Recreate
    {{- else }}
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: {{ .maxUnavailable | default 0 }}, maxSurge: 1}
    {{- end }}
  template: {{- include "enmasse.pod" . | nindent 4 }}
{{- end }}

{{/* The number of pods, unless another one decides it: an autoscaler, or who scales by hand. Arguments: values. */}}
{{- define "enmasse.replicas" -}}
{{- if not (or (kindIs "invalid" .values.replicas) .values.autoscale) -}}
replicas: {{ .values.replicas }}
{{- end }}
{{- end }}

{{/* What adds and removes pods by load, if the values ask for it; as `enmasse up` does (enmasse/supervisor/autoscale.py):
an event loop uses one core at most. Arguments: root, component, values, kind (of what has the pods). */}}
{{- define "enmasse.autoscaler" -}}
{{- with .values.autoscale }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "enmasse.name" $ }}
  labels: {{- include "enmasse.labels" $ | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: {{ $.kind }}, name: {{ include "enmasse.name" $ }}}
  minReplicas: {{ .min }}
  maxReplicas: {{ .max }}
  metrics:
    - type: Resource
      resource: {name: cpu, target: {type: AverageValue, averageValue: 700m}}
  behavior:
    # One after the other: each that goes hands its clients on for two minutes, and each that comes takes its share of them.
    scaleUp:
      policies: [{type: Pods, value: 1, periodSeconds: 60}]
    scaleDown:
      stabilizationWindowSeconds: 600
      policies: [{type: Pods, value: 1, periodSeconds: 180}]
{{- end }}
{{- end }}

{{/* Arguments: root, component. */}}
{{- define "enmasse.disruption" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "enmasse.name" . }}
  labels: {{- include "enmasse.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "enmasse.selector" . | nindent 6 }}
{{- end }}

{{/* A Service inside of the cluster. Arguments: root, component, ports (name → port); optional: notReady, sticky (a client stays at one pod), protocol. */}}
{{- define "enmasse.service" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "enmasse.name" . }}
  labels: {{- include "enmasse.labels" . | nindent 4 }}
spec:
  type: ClusterIP
  {{- if .notReady }}
  publishNotReadyAddresses: true
  {{- end }}
  {{- if .sticky }}
  sessionAffinity: ClientIP
  {{- end }}
  selector: {{- include "enmasse.selector" . | nindent 4 }}
  ports:
    {{- range $name, $port := .ports }}
    - {name: {{ $name }}, port: {{ $port }}, targetPort: {{ $name }}{{ with $.protocol }}, protocol: {{ . }}{{ end }}}
    {{- end }}
{{- end }}

{{/* Components whose pods have no port `health`, as a list in JSON. */}}
{{- define "enmasse.withoutMetrics" -}}
{{- $without := list "redis" "spark-executor" "spark-pipeline" "test" -}}
{{- if eq .Values.broker.engine "artemis" }}{{ $without = append $without "broker" }}{{ end -}}
{{- toJson $without -}}
{{- end }}

{{/* Not empty: routers form a mesh. Embedded ones believe each other by their certificates alone. */}}
{{- define "enmasse.mesh" -}}
{{- if or (eq .Values.router.engine "qdrouterd") .Values.identity.enabled }}true{{ end -}}
{{- end }}

{{/* The settings that every service has. Arguments: root, component. */}}
{{- define "enmasse.common" -}}
{{- $settings := dict "name" .component "health" "0.0.0.0:8080" "log_level" .root.Values.logLevel }}
{{- if .root.Values.identity.enabled }}{{ $_ := set $settings "credential" "/etc/enmasse-identity" }}{{ end }}
{{- toJson $settings -}}
{{- end }}

{{/* Component → role of its processes (enmasse/identity/processes/roles.py). */}}
{{- define "enmasse.roles" -}}
{{- $roles := dict "configserv" "configserv" "ragent" "ragent" "operator" "operator" }}
{{- range $component, $_ := include "enmasse.routers" . | fromJson }}{{ $_ := set $roles $component "router" }}{{ end }}
{{- if .Values.storageController.enabled }}
{{- $roles = merge $roles (dict "storage-controller" "storage_controller" "broker" "broker") }}
{{- end }}
{{- if .Values.users.enabled }}{{ $_ := set $roles "authserv" "authserv" }}{{ end }}
{{- if .Values.console.enabled }}{{ $_ := set $roles "console" "console" }}{{ end }}
{{- if .Values.mqtt.enabled }}
{{- $roles = merge $roles (dict "subserv" "subserv" "mqtt-lwt" "mqtt_lwt") }}
{{- range $component, $_ := include "enmasse.gateways" . | fromJson }}{{ $_ := set $roles $component "mqtt_gateway" }}{{ end }}
{{- end }}
{{- range $component, $_ := include "enmasse.doors" . | fromJson }}{{ $_ := set $roles $component (replace "-" "_" $component) }}{{ end }}
{{- toYaml $roles }}
{{- end }}

{{/* Component of gateways of HTTP, STOMP and CoAP → its values, and its listeners without and with TLS, in JSON. */}}
{{- define "enmasse.doors" -}}
{{- $found := dict }}
{{- if .Values.http.enabled }}
{{- $_ := set $found "http-gateway" (dict "values" "httpGateway" "plain" (dict "http" 8088) "tls" (dict "https" 8448) "sticky" true) }}
{{- end }}
{{- if .Values.stomp.enabled }}
{{- $_ := set $found "stomp-gateway" (dict "values" "stompGateway" "plain" (dict "stomp" 61613 "stompws" 61615) "tls" (dict "stomps" 61614 "stompwss" 61617) "sticky" false) }}
{{- end }}
{{- if .Values.coap.enabled }}
{{- $_ := set $found "coap-gateway" (dict "values" "coapGateway" "plain" (dict "coap" 5683) "tls" dict "sticky" true "protocol" "UDP") }}
{{- end }}
{{- toJson $found }}
{{- end }}

{{/* Component of MQTT gateways → the address space whose own they are, empty for those of all, in JSON. */}}
{{- define "enmasse.gateways" -}}
{{- include "enmasse.ofSpaces" (dict "root" . "component" "mqtt-gateway" "field" "mqttGateway" "kind" "Service" "most" 63) }}
{{- end }}

{{/* Component of routers → the address space whose own they are, empty for those of all, in JSON. The name of a
StatefulSet and a hash are a label of its pods. */}}
{{- define "enmasse.routers" -}}
{{- include "enmasse.ofSpaces" (dict "root" . "component" "router" "field" "router" "kind" "StatefulSet" "most" 52) }}
{{- end }}

{{/* Arguments: root, component (of all spaces), field (of its values), kind, most (length of its name). */}}
{{- define "enmasse.ofSpaces" -}}
{{- $found := dict .component "" }}
{{- range $space, $values := (get .root.Values .field).spaces }}
{{- if ne (dig "replicas" 1 ($values | default dict) | int) 0 }}
{{- $component := printf "%s-%s" $.component $space }}
{{- $name := include "enmasse.name" (dict "root" $.root "component" $component) }}
{{- if gt (len $name) (int $.most) }}
{{- fail (printf "%s.spaces: a %s cannot have the name %s, for it is longer than %d characters" $.field $.kind $name (int $.most)) }}
{{- end }}
{{- if has $space (list "external" "pods") }}
{{- fail (printf "%s.spaces: the name %s is taken by another Service of the release; give the address space another name" $.field $name) }}
{{- end }}
{{- $_ := set $found $component $space }}
{{- end }}
{{- end }}
{{- toJson $found }}
{{- end }}

{{/* Component of the routers to which MQTT gateways connect: those of their address space, if it has any. Arguments: root,
space. */}}
{{- define "enmasse.routerOf" -}}
{{- $own := printf "router-%s" .space -}}
{{- ternary $own "router" (hasKey (include "enmasse.routers" .root | fromJson) $own) -}}
{{- end }}

{{/* Secret with the certificate of a component's processes. Arguments: root, component. */}}
{{- define "enmasse.identitySecret" -}}
{{- printf "%s-%s-identity" .root.Release.Name .component -}}
{{- end }}

{{/* Not empty: the pods of a component have a certificate. Arguments: root, component. */}}
{{- define "enmasse.isProcess" -}}
{{- if and .root.Values.identity.enabled (hasKey (include "enmasse.roles" .root | fromYaml) .component) }}true{{ end -}}
{{- end }}

{{- define "enmasse.at" -}}
{{- printf "%s-%s:%d" .root.Release.Name .component (int .port) -}}
{{- end }}

{{/* The store of subserv or mqtt_lwt. */}}
{{- define "enmasse.store" -}}
{{- $own := dict "url" (printf "redis://%s-redis:6379" .root.Release.Name) "password_file" "/etc/enmasse-redis/password" -}}
{{- $prefix := printf "%s/%s:%s" .root.Release.Namespace .root.Release.Name .component -}}
{{- dict "kind" "redis" "prefix" $prefix | merge (ternary $own (dict "url" .root.Values.redis.url) .root.Values.redis.enabled) | toJson -}}
{{- end }}

{{/*
Kind of configuration → names of the ConfigMaps that the release makes. Developers may edit those with addresses: so none
has the name of another ConfigMap of the release.
*/}}
{{- define "enmasse.configMaps" -}}
{{- $release := .Release.Name }}
{{- $maps := dict
  "addresses" (prepend .Values.configuration.addresses (printf "%s-addresses" $release))
  "flavors" (prepend .Values.configuration.flavors (printf "%s-flavors" $release)) }}
{{- if not .Values.storageController.enabled }}{{ $_ := set $maps "brokers" (list (printf "%s-brokers" $release)) }}{{ end }}
{{- if .Values.configuration.spaces }}
{{- $_ := set $maps "spaces" (list (printf "%s-spaces" $release)) }}
{{- $_ := set $maps "plans" (list (printf "%s-plans" $release)) }}
{{- end }}
{{- $taken := list }}
{{- range concat (list "authserv" "coap-gateway" "configserv" "console" "http-gateway" "mqtt-lwt" "ragent" "redis" "spark-pipeline" "stomp-gateway" "storage-controller" "subserv" "test") (include "enmasse.routers" . | fromJson | keys) (include "enmasse.gateways" . | fromJson | keys) }}
{{- $taken = append $taken (printf "%s-%s" $release .) }}
{{- end }}
{{- $every := deepCopy $maps }}
{{- range $space, $names := .Values.configuration.spaces }}{{ $_ := set $every (printf "spaces.%s" $space) $names }}{{ end }}
{{- range $kind, $names := $every }}
{{- range $names }}
{{- if or (has . $taken) (hasSuffix "-status" .) (hasSuffix "-state" .) }}
{{- fail (printf "configuration.%s: the name %s is taken by another ConfigMap of the release; choose another one" $kind .) }}
{{- end }}
{{- $taken = append $taken . }}
{{- end }}
{{- end }}
{{- toYaml $maps }}
{{- end }}

{{/* Names of all ConfigMaps with configuration that the release makes, as a list in JSON. */}}
{{- define "enmasse.allConfigMaps" -}}
{{- $all := list }}
{{- range include "enmasse.configMaps" . | fromYaml }}{{ $all = concat $all . }}{{ end }}
{{- range .Values.configuration.spaces }}{{ $all = concat $all . }}{{ end }}
{{- toJson $all }}
{{- end }}

{{/* Secrets in which configserv keeps the last good users (services/configserv/state/user_secrets.py), as a list in JSON. */}}
{{- define "enmasse.userSecrets" -}}
{{- $names := list "enmasse-configserv-state" }}
{{- range until 16 }}{{ $names = append $names (printf "enmasse-configserv-state-users-%d" .) }}{{ end }}
{{- toJson $names -}}
{{- end }}

{{/* Service of an endpoint of an AddressSpace → where clients reach it in the cluster and from outside, in JSON. */}}
{{- define "enmasse.endpoints" -}}
{{- $root := . }}
{{- $found := dict }}
{{- range $service, $given := dict
  "messaging" (dict "component" "router" "outside" "amqps" "ports" (dict "amqp" 5672) "tls" (dict "amqps" 5671))
  "mqtt" (dict "component" "mqtt-gateway" "outside" "mqtts" "ports" (dict "mqtt" 1883 "ws" 8083) "tls" (dict "secure-mqtt" 8883 "wss" 8084))
  "console" (dict "component" "console" "outside" "https" "ports" dict "tls" (dict "https" 8443)) }}
{{- $ports := $given.ports }}
{{- if $root.Values.tls.enabled }}{{ $ports = merge (dict) $ports $given.tls }}{{ end }}
{{- $runs := or (eq $service "messaging") (and (eq $service "mqtt") $root.Values.mqtt.enabled) (and (eq $service "console") $root.Values.console.enabled $root.Values.users.enabled) }}
{{- if and $runs $ports }}
{{- $endpoint := dict "host" (printf "%s-%s.%s.svc" $root.Release.Name $given.component $root.Release.Namespace) "ports" $ports }}
{{- range $way := list "loadBalancer" "ingress" "routes" }}
{{- $values := index $root.Values $way }}
{{- if $values.enabled }}
{{- if eq $way "loadBalancer" }}
{{- with $values.hosts }}{{ $_ := set $endpoint "external_host" (first .) }}{{ $_ := set $endpoint "external_ports" $given.tls }}{{ end }}
{{- else }}
{{- with get $values.hosts $given.outside }}
{{- $_ := set $endpoint "external_host" . }}
{{- $_ := set $endpoint "external_ports" (dict (ternary "secure-mqtt" $given.outside (eq $service "mqtt")) 443) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- $_ := set $found $service $endpoint }}
{{- end }}
{{- end }}
{{- toJson $found }}
{{- end }}

{{/* Address space → service of an endpoint → where clients reach what the space has of its own, in JSON. */}}
{{- define "enmasse.ownEndpoints" -}}
{{- $found := dict }}
{{- $endpoints := include "enmasse.endpoints" . | fromJson }}
{{- range $service, $components := dict "messaging" (include "enmasse.routers" . | fromJson) "mqtt" (include "enmasse.gateways" . | fromJson) }}
{{- range $component, $space := $components }}
{{- if and $space (hasKey $endpoints $service) }}
{{- $host := printf "%s-%s.%s.svc" $.Release.Name $component $.Release.Namespace }}
{{- $own := dict $service (dict "host" $host "ports" (get $endpoints $service).ports) }}
{{- $_ := set $found $space (merge $own (get $found $space | default dict)) }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $found }}
{{- end }}

{{/* Hosts of the Services for clients, as a list in JSON. */}}
{{- define "enmasse.serviceHosts" -}}
{{- $root := . }}
{{- $names := list "localhost" }}
{{- $services := list "router" "mqtt-gateway" }}
{{- range list "enmasse.gateways" "enmasse.routers" }}
{{- range $component, $space := include . $root | fromJson }}{{ if $space }}{{ $services = append $services $component }}{{ end }}{{ end }}
{{- end }}
{{- if .Values.console.enabled }}{{ $services = append $services "console" }}{{ end }}
{{- $services = concat $services (include "enmasse.doors" . | fromJson | keys | sortAlpha) }}
{{- range $service := $services }}
{{- range $suffix := list "" (printf ".%s" $root.Release.Namespace) (printf ".%s.svc" $root.Release.Namespace) (printf ".%s.svc.cluster.local" $root.Release.Namespace) }}
{{- $names = append $names (printf "%s-%s%s" $root.Release.Name $service $suffix) }}
{{- end }}
{{- end }}
{{- toJson $names }}
{{- end }}

{{/* Hosts by which the release is reached from outside, as a list in JSON. */}}
{{- define "enmasse.exposedHosts" -}}
{{- concat .Values.loadBalancer.hosts (values .Values.routes.hosts | sortAlpha) (values .Values.ingress.hosts | sortAlpha) | compact | toJson }}
{{- end }}

{{/* Rules for the custom resources of tenants, in a namespace. */}}
{{- define "enmasse.resourceRules" -}}
- apiGroups: [enmasse.io]
  resources: [addresses, addressspaces]
  verbs: [list, watch]
- apiGroups: [enmasse.io]
  resources: [addresses/status, addressspaces/status]
  verbs: [patch]
- apiGroups: [user.enmasse.io]
  resources: [messagingusers]
  verbs: [list, watch]
- apiGroups: [user.enmasse.io]
  resources: [messagingusers/status]
  verbs: [patch]
{{- with .Values.customResources.passwordSecrets }}
# Passwords that MessagingUsers take from Secrets.
- apiGroups: [""]
  resources: [secrets]
  resourceNames: {{ toJson . }}
  verbs: [get]
{{- end }}
{{- end }}
