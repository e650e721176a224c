{{- /* The options of the programs, as environment variables: what a ConfigMap holds. */}}

{{- define "ebs.controllerOptions" -}}
{{- $values := .Values.controller }}
{{- $prefix := "EBS_PROVISIONER_CONTROLLER_" }}
{{- $options := dict (print $prefix "CLUSTER_ID") (tpl ($values.k8sTagClusterId | default "") .) }}
{{- with $values.region }}{{ $_ := set $options "AWS_REGION" . }}{{ end }}
{{- $tags := list }}
{{- range $key, $value := $values.extraVolumeTags }}
{{- /* Helm reads every number as a float, and would write 1234567 as 1.234567e+06. */}}
{{- $whole := and (kindIs "float64" $value) (eq $value (floor $value)) }}
{{- $tags = append $tags (printf (ternary "%s=%.0f" "%s=%v" $whole) $key $value) }}
{{- end }}
{{- with $tags }}{{ $_ := set $options (print $prefix "EXTRA_TAGS") (join "," .) }}{{ end }}
{{- if $values.reconcileExtraVolumeTags }}{{ $_ := set $options (print $prefix "RECONCILE_EXTRA_TAGS") "true" }}{{ end }}
{{- if and $values.defaultFsType (ne $values.defaultFsType "ext4") }}
{{- $_ := set $options (print $prefix "DEFAULT_FSTYPE") $values.defaultFsType }}
{{- end }}
{{- if $values.volumeModificationFeature.enabled }}{{ $_ := set $options (print $prefix "MODIFY_ANNOTATIONS") "true" }}{{ end }}
{{- if ne $values.orphanSweep "delete" }}{{ $_ := set $options (print $prefix "ORPHAN_SWEEP") $values.orphanSweep }}{{ end }}
{{- if $values.initializeNodes }}{{ $_ := set $options (print $prefix "INITIALIZE_NODES") "true" }}{{ end }}
{{- if $values.releaseDeadNodes }}{{ $_ := set $options (print $prefix "RELEASE_DEAD_NODES") "true" }}{{ end }}
{{- if $values.volumeMoves }}{{ $_ := set $options (print $prefix "VOLUME_MOVES") "true" }}{{ end }}
{{- if ne $values.leaderElectionNamespace "kube-system" }}
{{- $_ := set $options (print $prefix "LEADER_ELECTION_NAMESPACE") $values.leaderElectionNamespace }}
{{- end }}
{{- with include "ebs.logLevel" (dict "level" $values.logLevel "root" .) }}
{{- $_ := set $options (print $prefix "LOG_LEVEL") . }}
{{- end }}
{{- toYaml $options }}
{{- end }}

{{- /* Takes (dict "values" VALUES-OF-THE-GROUP "root" $). */}}
{{- define "ebs.nodeOptions" -}}
{{- $values := .values }}
{{- $prefix := "EBS_PROVISIONER_NODE_" }}
{{- $options := dict }}
{{- with include "ebs.logLevel" (dict "level" $values.logLevel "root" .root) }}
{{- $_ := set $options (print $prefix "LOG_LEVEL") . }}
{{- end }}
{{- if ne $values.kubeletPath "/var/lib/kubelet" }}{{ $_ := set $options (print $prefix "KUBELET_DIR") $values.kubeletPath }}{{ end }}
{{- if $values.legacyXFS }}{{ $_ := set $options (print $prefix "LEGACY_XFS") "true" }}{{ end }}
{{- if and (not (kindIs "invalid" $values.volumeAttachLimit)) (ge (int $values.volumeAttachLimit) 0) }}
{{- $_ := set $options (print $prefix "VOLUME_ATTACH_LIMIT") (toString $values.volumeAttachLimit) }}
{{- end }}
{{- if and (not (kindIs "invalid" $values.reservedVolumeAttachments)) (ge (int $values.reservedVolumeAttachments) 0) }}
{{- $_ := set $options (print $prefix "RESERVED_VOLUME_ATTACHMENTS") (toString $values.reservedVolumeAttachments) }}
{{- end }}
{{- if eq ($values.metadataSources | default "") "kubernetes" }}{{ $_ := set $options "AWS_EC2_METADATA_DISABLED" "true" }}{{ end }}
{{- toYaml $options }}
{{- end }}

{{- define "ebs.webhookOptions" -}}
{{- $values := .Values.webhook }}
{{- $prefix := "EBS_WEBHOOK_SERVE_" }}
{{- $options := dict (print $prefix "STRICT") (toString $values.strict) }}
{{- with $values.region }}{{ $_ := set $options "AWS_REGION" . }}{{ end }}
{{- if ne $values.certificates "own" }}{{ $_ := set $options (print $prefix "TLS_MANAGE") "false" }}{{ end }}
{{- if .Values.controller.volumeMoves }}{{ $_ := set $options (print $prefix "VOLUME_MOVES") "true" }}{{ end }}
{{- with include "ebs.logLevel" (dict "level" $values.logLevel "root" .) }}
{{- $_ := set $options (print $prefix "LOG_LEVEL") . }}
{{- end }}
{{- toYaml $options }}
{{- end }}
