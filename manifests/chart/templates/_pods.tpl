{{- /* What the pods of the three programs have in common. Each takes (dict "values" … "root" $). */}}

{{- /* … and "component". */}}
{{- define "ebs.podLabels" -}}
{{- $own := fromYaml (include "ebs.selector" .component) }}
{{- mergeOverwrite (deepCopy .root.Values.customLabels) (.values.podLabels | default dict) $own | toYaml }}
{{- end }}

{{- /* … and "component": without the ServiceAccount, tolerations and volumes. */}}
{{- define "ebs.podSpec" -}}
{{- $values := .values -}}
priorityClassName: {{ $values.priorityClassName | default (ternary "system-node-critical" "system-cluster-critical" (hasPrefix "node" .component)) | quote }}
nodeSelector:
  kubernetes.io/os: linux
  {{- with $values.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  {{- $ours := dict "labelSelector" (dict "matchLabels" (fromYaml (include "ebs.selector" $.component))) }}
  - {{- mergeOverwrite (deepCopy .) $ours | toYaml | nindent 4 }}
  {{- end }}
{{- end }}
{{- with $values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Kubernetes refuses rollingUpdate, which has defaults here, beside another type. Takes the strategy. */}}
{{- define "ebs.updateStrategy" -}}
{{- if eq (.type | default "RollingUpdate") "RollingUpdate" }}
{{- toYaml . }}
{{- else }}
{{- toYaml (pick . "type") }}
{{- end }}
{{- end }}

{{- define "ebs.container" -}}
image: {{ include "ebs.image" .root }}
{{- with .root.Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- with .values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.containerSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Nodes that neither a cloud controller nor --initialize-nodes has initialized yet. */}}
{{- define "ebs.uninitializedToleration" -}}
- key: node.cloudprovider.kubernetes.io/uninitialized
  operator: Exists
{{- end }}
