{{- /* A value as TOML: text, numbers, booleans and lists of them are written as in JSON, tables inline. */}}
{{- define "delay-router.toml" -}}
{{- if kindIs "map" . -}}
{{- $pairs := list }}
{{- range $key := keys . | sortAlpha }}
{{- $pairs = append $pairs (printf "%s = %s" (toJson $key) (include "delay-router.toml" (index $ $key))) }}
{{- end -}}
{ {{- join ", " $pairs -}} }
{{- else if kindIs "slice" . -}}
{{- $items := list }}
{{- range . }}
{{- $items = append $items (include "delay-router.toml" .) }}
{{- end -}}
[{{ join ", " $items }}]
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end }}

{{- define "delay-router.table" -}}
{{- range $key := keys . | sortAlpha }}
{{ toJson $key }} = {{ include "delay-router.toml" (index $ $key) }}
{{- end }}
{{- end }}

{{- /* [kafka] as the values and the options for TLS and SASL make it, as JSON. */}}
{{- define "delay-router.kafka" -}}
{{- $kafka := deepCopy .Values.config.kafka }}
{{- if .Values.sasl.enabled }}
{{- $_ := set $kafka "security.protocol" (ternary "SASL_SSL" "SASL_PLAINTEXT" .Values.tls.enabled) }}
{{- else if .Values.tls.enabled }}
{{- $_ := set $kafka "security.protocol" "SSL" }}
{{- end }}
{{- if .Values.sasl.enabled }}
{{- $_ := set $kafka "sasl.mechanism" .Values.sasl.mechanism }}
{{- if eq .Values.sasl.mechanism "OAUTHBEARER" }}
{{- $_ := set $kafka "sasl.oauthbearer.method" "oidc" }}
{{- $_ := set $kafka "sasl.oauthbearer.token.endpoint.url" .Values.sasl.oauth.tokenEndpoint }}
{{- with .Values.sasl.oauth.scope }}
{{- $_ := set $kafka "sasl.oauthbearer.scope" . }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.tls.enabled }}
{{- if .Values.tls.ca.existingSecret }}
{{- $_ := set $kafka "ssl.ca.location" "/etc/delay-router/tls/ca/ca.crt" }}
{{- end }}
{{- if .Values.tls.client.existingSecret }}
{{- $_ := set $kafka "ssl.certificate.location" "/etc/delay-router/tls/client/tls.crt" }}
{{- $_ := set $kafka "ssl.key.location" "/etc/delay-router/tls/client/tls.key" }}
{{- end }}
{{- end }}
{{- toJson $kafka }}
{{- end }}

{{- /* [admin], as JSON. The names of the Service are as DNS has them, within the namespace and beyond. */}}
{{- define "delay-router.admin" -}}
{{- $name := include "delay-router.admin-name" . }}
{{- $names := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) }}
{{- $admin := dict "listen" (printf "0.0.0.0:%d" (.Values.admin.port | int)) "token_file" "/etc/delay-router/admin/tokens" }}
{{- $_ := set $admin "allowed_hosts" (concat $names .Values.admin.allowedHosts) }}
{{- $_ := set $admin "page" .Values.admin.page }}
{{- if .Values.admin.tls.existingSecret }}
{{- $_ := set $admin "tls_cert_file" "/etc/delay-router/admin-tls/tls.crt" }}
{{- $_ := set $admin "tls_key_file" "/etc/delay-router/admin-tls/tls.key" }}
{{- if .Values.admin.tls.clientCa.existingSecret }}
{{- $_ := set $admin "tls_client_ca_file" "/etc/delay-router/admin-client-ca/ca.crt" }}
{{- end }}
{{- else }}
{{- $_ := set $admin "allow_plaintext" true }}
{{- end }}
{{- toJson $admin }}
{{- end }}

{{- define "delay-router.config" -}}
[kafka]
{{- include "delay-router.table" (include "delay-router.kafka" . | fromJson) }}

[router]
{{- include "delay-router.table" .Values.config.router }}

[http]
"listen" = "0.0.0.0:{{ .Values.service.port | int }}"
{{- if .Values.admin.enabled }}

[admin]
{{- include "delay-router.table" (include "delay-router.admin" . | fromJson) }}
{{- end }}
{{- range .Values.config.delay_topics }}

[[delay_topics]]
{{- include "delay-router.table" . }}
{{- end }}
{{- with .Values.extraConfig }}

{{ . | trim }}
{{- end }}
{{ end }}

{{- /* What the schema cannot see: values that contradict each other. */}}
{{- define "delay-router.check-values" -}}
{{- $servers := index .Values.config.kafka "bootstrap.servers" | toString }}
{{- if not $servers }}
{{- /* Not by the schema: helm lint of the chart as it is, without any values, has to pass. */}}
{{- fail "config.kafka.bootstrap.servers is required: the brokers, as in kafka-bootstrap.kafka.svc:9092" }}
{{- end }}
{{- if and .Values.sasl.enabled (not .Values.tls.enabled) (not .Values.config.router.allow_sasl_plaintext) }}
{{- fail "sasl.enabled without tls.enabled would send credentials in the clear: set tls.enabled=true, or say that you mean it by config.router.allow_sasl_plaintext=true" }}
{{- end }}
{{- if and .Values.sasl.enabled (not .Values.sasl.existingSecret) }}
{{- fail "sasl.enabled needs sasl.existingSecret: the secret that holds user name and password" }}
{{- end }}
{{- if and .Values.sasl.enabled (eq .Values.sasl.mechanism "OAUTHBEARER") }}
{{- include "delay-router.check-oauth" . }}
{{- else if .Values.sasl.oauth.tokenEndpoint }}
{{- fail "sasl.oauth.tokenEndpoint has no effect without sasl.enabled and sasl.mechanism=OAUTHBEARER" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled }}
{{- fail "serviceMonitor.enabled and podMonitor.enabled would scrape every router twice: choose one" }}
{{- end }}
{{- with .Values.autoscaling }}
{{- if and .enabled (lt (.maxReplicas | int) (.minReplicas | int)) }}
{{- fail "autoscaling.enabled needs autoscaling.maxReplicas, as many as there are partitions of delay topics, and not fewer than minReplicas" }}
{{- end }}
{{- if and .enabled (not .prometheus) }}
{{- fail "autoscaling.enabled needs autoscaling.prometheus: the address of the Prometheus that scrapes the routers" }}
{{- end }}
{{- end }}
{{- if and .Values.topicsInit.sasl.existingSecret (not .Values.sasl.enabled) }}
{{- fail "topicsInit.sasl.existingSecret has no effect without sasl.enabled" }}
{{- end }}
{{- with .Values.admin }}
{{- if .enabled }}
{{- if not .existingSecret }}
{{- fail "admin.enabled needs admin.existingSecret: the secret that holds the tokens" }}
{{- end }}
{{- if and (not .tls.existingSecret) (not .allowPlaintext) }}
{{- fail "admin.enabled without admin.tls.existingSecret would send tokens in the clear: name the secret of a certificate, or say that you mean it by admin.allowPlaintext=true" }}
{{- end }}
{{- if and .tls.clientCa.existingSecret (not .tls.existingSecret) }}
{{- fail "admin.tls.clientCa.existingSecret has no effect without admin.tls.existingSecret" }}
{{- end }}
{{- if eq (.port | int) ($.Values.service.port | int) }}
{{- fail "admin.port must not be service.port: probes and metrics need no token" }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.networkPolicy.enabled $servers }}
{{- range $server := splitList "," $servers }}
{{- $port := regexFind "[0-9]+$" $server | default "9092" }}
{{- $listed := false }}
{{- range $.Values.networkPolicy.brokerPorts }}
{{- $listed = or $listed (eq (. | int | toString) $port) }}
{{- end }}
{{- if not $listed }}
{{- fail (printf "networkPolicy would block %s: add %s, and every port that brokers advertise, to networkPolicy.brokerPorts" ($server | trim) $port) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "delay-router.check-oauth" -}}
{{- $endpoint := .Values.sasl.oauth.tokenEndpoint }}
{{- if not $endpoint }}
{{- fail "sasl.mechanism=OAUTHBEARER needs sasl.oauth.tokenEndpoint: where tokens are fetched" }}
{{- end }}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.extraEgress) }}
{{- fail (printf "networkPolicy would block %s: let it out by networkPolicy.extraEgress, as [{ports: [{port: 443, protocol: TCP}]}]" $endpoint) }}
{{- end }}
{{- end }}
