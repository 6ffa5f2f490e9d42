{{- define "delay-router.pod-security" -}}
runAsNonRoot: true
runAsUser: {{ .Values.user | int }}
runAsGroup: {{ .Values.group | int }}
fsGroup: {{ .Values.group | int }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "delay-router.container-security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* Call with (dict "root" $ "sasl" VALUES). Secrets are files; the environment says where. */}}
{{- define "delay-router.secret-env" -}}
{{- $root := .root }}
{{- if $root.Values.sasl.enabled }}
{{- $oauth := eq $root.Values.sasl.mechanism "OAUTHBEARER" }}
{{- $user := ternary "SASL_OAUTHBEARER_CLIENT_ID" "SASL_USERNAME" $oauth }}
{{- if .sasl.username }}
- name: DELAY_ROUTER__KAFKA__{{ $user }}
  value: {{ .sasl.username | quote }}
{{- else }}
- name: DELAY_ROUTER__KAFKA__{{ $user }}_FILE
  value: /etc/delay-router/sasl/username
{{- end }}
- name: DELAY_ROUTER__KAFKA__{{ ternary "SASL_OAUTHBEARER_CLIENT_SECRET" "SASL_PASSWORD" $oauth }}_FILE
  value: /etc/delay-router/sasl/password
{{- end }}
{{- with $root.Values.tls }}
{{- if and .enabled .client.existingSecret .client.passwordKey }}
- name: DELAY_ROUTER__KAFKA__SSL_KEY_PASSWORD_FILE
  value: /etc/delay-router/tls/client/password
{{- end }}
{{- end }}
{{- with $root.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "delay-router.mounts" -}}
- name: config
  mountPath: /etc/delay-router/config
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- if .Values.sasl.enabled }}
- name: sasl
  mountPath: /etc/delay-router/sasl
  readOnly: true
{{- end }}
{{- if and .Values.tls.enabled .Values.tls.ca.existingSecret }}
- name: tls-ca
  mountPath: /etc/delay-router/tls/ca
  readOnly: true
{{- end }}
{{- if and .Values.tls.enabled .Values.tls.client.existingSecret }}
- name: tls-client
  mountPath: /etc/delay-router/tls/client
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Call with the values of a ServiceMonitor or a PodMonitor, which are alike. */}}
{{- define "delay-router.scrape" -}}
path: /metrics
interval: {{ .interval }}
scrapeTimeout: {{ .scrapeTimeout }}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "delay-router.env-from" -}}
{{- with .Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Call with (dict "root" $ "configMap" NAME "sasl" VALUES). */}}
{{- define "delay-router.volumes" -}}
{{- $tls := .root.Values.tls }}
- name: config
  configMap:
    name: {{ .configMap }}
- name: tmp
  emptyDir:
    sizeLimit: {{ .root.Values.tmpSizeLimit }}
{{- if .root.Values.sasl.enabled }}
- name: sasl
  secret:
    secretName: {{ .sasl.existingSecret }}
    defaultMode: 0440
    items:
      {{- if not .sasl.username }}
      - key: {{ .sasl.usernameKey }}
        path: username
      {{- end }}
      - key: {{ .sasl.passwordKey }}
        path: password
{{- end }}
{{- if and $tls.enabled $tls.ca.existingSecret }}
- name: tls-ca
  secret:
    secretName: {{ $tls.ca.existingSecret }}
    defaultMode: 0440
    items:
      - key: {{ $tls.ca.key }}
        path: ca.crt
{{- end }}
{{- if and $tls.enabled $tls.client.existingSecret }}
- name: tls-client
  secret:
    secretName: {{ $tls.client.existingSecret }}
    defaultMode: 0440
    items:
      - key: {{ $tls.client.certKey }}
        path: tls.crt
      - key: {{ $tls.client.keyKey }}
        path: tls.key
      {{- with $tls.client.passwordKey }}
      - key: {{ . }}
        path: password
      {{- end }}
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Of the routers only: the job that creates topics serves nothing. Whole directories, so that they are renewed. */}}
{{- define "delay-router.admin-mounts" -}}
- name: admin
  mountPath: /etc/delay-router/admin
  readOnly: true
{{- if .Values.admin.tls.existingSecret }}
- name: admin-tls
  mountPath: /etc/delay-router/admin-tls
  readOnly: true
{{- if .Values.admin.tls.clientCa.existingSecret }}
- name: admin-client-ca
  mountPath: /etc/delay-router/admin-client-ca
  readOnly: true
{{- end }}
{{- end }}
{{- end }}

{{- define "delay-router.admin-volumes" -}}
{{- with .Values.admin }}
- name: admin
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0440
    items:
      - key: {{ .tokensKey }}
        path: tokens
{{- if .tls.existingSecret }}
- name: admin-tls
  secret:
    secretName: {{ .tls.existingSecret }}
    defaultMode: 0440
    items:
      - key: {{ .tls.certKey }}
        path: tls.crt
      - key: {{ .tls.keyKey }}
        path: tls.key
{{- if .tls.clientCa.existingSecret }}
- name: admin-client-ca
  secret:
    secretName: {{ .tls.clientCa.existingSecret }}
    defaultMode: 0440
    items:
      - key: {{ .tls.clientCa.key }}
        path: ca.crt
{{- end }}
{{- end }}
{{- end }}
{{- end }}
