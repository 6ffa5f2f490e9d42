{{- define "delay-router.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- /* 40 characters, so that every name derived from it stays a label: pods of a StatefulSet get a hash of 11. */}}
{{- define "delay-router.fullname" -}}
{{- $name := include "delay-router.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "delay-router.admin-name" -}}
{{- printf "%s-admin" (include "delay-router.fullname" .) }}
{{- end }}

{{- define "delay-router.selector" -}}
app.kubernetes.io/name: {{ include "delay-router.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: router
{{- end }}

{{- define "delay-router.common-labels" -}}
app.kubernetes.io/name: {{ include "delay-router.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "delay-router.labels" -}}
{{ include "delay-router.common-labels" . }}
app.kubernetes.io/component: router
{{- end }}

{{- /* Call with (dict "root" $ "more" LABELS), which win over commonLabels. */}}
{{- define "delay-router.labels-and" -}}
{{- toYaml (mergeOverwrite (include "delay-router.labels" .root | fromYaml) .more) }}
{{- end }}

{{- define "delay-router.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- /* How many routers run at least: autoscaling takes the place of replicas. */}}
{{- define "delay-router.replicas" -}}
{{ ternary .Values.autoscaling.minReplicas .Values.replicas .Values.autoscaling.enabled | int }}
{{- end }}

{{- define "delay-router.service-account" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "delay-router.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}
