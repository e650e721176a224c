{{- /* Names, labels and images. Every template takes the root context unless it says otherwise. */}}

{{- define "ebs.nodeNamespace" -}}
{{- .Values.node.namespaceOverride | default .Release.Namespace -}}
{{- end }}

{{- define "ebs.webhookNamespace" -}}
{{- .Values.webhook.namespaceOverride | default (ternary "ebs-webhook" .Release.Namespace .Values.webhook.hostNetwork) -}}
{{- end }}

{{- /* Those that are installed, as JSON: the keys of their values. */}}
{{- define "ebs.components" -}}
{{- $installed := dict "controller" (not .Values.nodeComponentOnly) "node" .Values.node.enableLinux "webhook" .Values.webhook.enabled }}
{{- $names := list }}
{{- range $name, $is := $installed }}
{{- if $is }}{{ $names = append $names $name }}{{ end }}
{{- end }}
{{- toJson $names }}
{{- end }}

{{- /* What the objects have beside the labels that selectors name. */}}
{{- define "ebs.ownLabels" -}}
app.kubernetes.io/name: ebs-provisioner
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "ebs.commonLabels" -}}
{{ include "ebs.ownLabels" . }}
{{- with .Values.customLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Of a workload and its pods: the same as in ../../, so either can be replaced by the other. */}}
{{- define "ebs.selector" -}}
app.kubernetes.io/name: ebs-provisioner
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- define "ebs.image" -}}
{{- $image := .Values.image -}}
{{ $image.containerRegistry | default "" }}{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}{{ with $image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- /* Takes (dict "level" … "root" $); empty: the program's default. */}}
{{- define "ebs.logLevel" -}}
{{- if .root.Values.debugLogs -}}
debug
{{- else if kindIs "string" .level -}}
{{- .level -}}
{{- else if not (kindIs "invalid" .level) -}}
{{- ternary "debug" "info" (ge (int .level) 4) -}}
{{- end -}}
{{- end }}

{{- /* Variables for all programs that ask AWS. */}}
{{- define "ebs.proxyEnv" -}}
{{- with .Values.proxy.http_proxy }}
- {name: HTTP_PROXY, value: {{ . | quote }}}
- {name: HTTPS_PROXY, value: {{ . | quote }}}
{{- end }}
{{- with .Values.proxy.no_proxy }}
- {name: NO_PROXY, value: {{ . | quote }}}
{{- end }}
{{- end }}

{{- define "ebs.accessKeyEnv" -}}
{{- with .Values.awsAccessSecret }}
{{- if .name }}
- name: AWS_ACCESS_KEY_ID
  valueFrom:
    secretKeyRef: {name: {{ .name | quote }}, key: {{ .keyId | quote }}, optional: true}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom:
    secretKeyRef: {name: {{ .name | quote }}, key: {{ .accessKey | quote }}, optional: true}
{{- end }}
{{- end }}
{{- end }}

{{- /* Takes (dict "account" … "namespace" … "root" $). */}}
{{- define "ebs.serviceAccount" -}}
{{- if .account.create }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .account.name | quote }}
  namespace: {{ .namespace | quote }}
  labels:
    {{- include "ebs.commonLabels" .root | nindent 4 }}
  {{- with .account.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- if kindIs "bool" .account.automountServiceAccountToken }}
automountServiceAccountToken: {{ .account.automountServiceAccountToken }}
{{- end }}
{{- end }}
{{- end }}

{{- /* "true" if the chart creates it. */}}
{{- define "ebs.createsNodeNamespace" -}}
{{- $name := include "ebs.nodeNamespace" . }}
{{- if and .Values.node.enableLinux .Values.node.createNamespace (ne $name .Release.Namespace) (not (hasPrefix "kube-" $name)) }}true{{ end }}
{{- end }}

{{- define "ebs.createsWebhookNamespace" -}}
{{- with .Values.webhook }}{{ if and .enabled .hostNetwork (not .namespaceOverride) }}true{{ end }}{{ end }}
{{- end }}

{{- /* A namespace whose pods may do all on their host. Takes (dict "name" … "root" $). */}}
{{- define "ebs.privilegedNamespace" -}}
---
apiVersion: v1
kind: Namespace
metadata:
  name: {{ .name | quote }}
  labels:
    {{- include "ebs.commonLabels" .root | nindent 4 }}
    pod-security.kubernetes.io/enforce: privileged
    pod-security.kubernetes.io/audit: privileged
    pod-security.kubernetes.io/warn: privileged
  annotations:
    # Helm would delete all that others have put there since.
    helm.sh/resource-policy: keep
{{- end }}
