{{- /*
Rights, policies and the webhook's configurations are not written down again here: files/ has links
to the kustomization's, and this template gives them the release's namespaces, accounts and labels.

Takes (dict "file" … "root" $).
*/}}
{{- define "ebs.linked" -}}
{{- $root := .root }}
{{- $text := include "ebs.file" . }}
{{- range splitList "\n---\n" $text }}
{{- $object := fromYaml . }}
{{- if hasKey $object "Error" }}{{ fail (printf "a linked file cannot be read: %s" $object.Error) }}{{ end }}
{{- $labels := merge (default dict $object.metadata.labels) (fromYaml (include "ebs.commonLabels" $root)) }}
{{- $_ := set $object.metadata "labels" $labels }}
{{- include "ebs.place" (dict "object" $object "root" $root) }}
---
{{ include "ebs.renameAccounts" (dict "text" (toYaml $object) "root" $root) }}
{{- end }}
{{- end }}

{{- /* The text of a linked file. Takes the same. */}}
{{- define "ebs.file" -}}
{{- $text := .root.Files.Get (printf "files/%s" .file) }}
{{- if not $text }}
{{- fail (printf "files/%s is missing in the chart: it is a symbolic link; use a packaged chart (helm package), or a checkout with its links" .file) }}
{{- end }}
{{- $text }}
{{- end }}

{{- /* Our accounts: their names in the linked files, and here. */}}
{{- define "ebs.accounts" -}}
ebs-provisioner-controller:
  was: ebs-provisioner
  namespace: {{ .Release.Namespace | quote }}
  name: {{ .Values.controller.serviceAccount.name | quote }}
ebs-provisioner-node:
  was: ebs-provisioner-node
  namespace: {{ include "ebs.nodeNamespace" . | quote }}
  name: {{ .Values.node.serviceAccount.name | quote }}
ebs-webhook:
  was: ebs-provisioner
  namespace: {{ include "ebs.webhookNamespace" . | quote }}
  name: {{ .Values.webhook.serviceAccount.name | quote }}
{{- end }}

{{- /* Sets the namespaces of an object, in place. */}}
{{- define "ebs.place" -}}
{{- $object := .object }}
{{- $root := .root }}
{{- $accounts := fromYaml (include "ebs.accounts" $root) }}
{{- range $subject := $object.subjects }}
{{- $account := get $accounts $subject.name }}
{{- $_ := set $subject "namespace" $account.namespace }}
{{- $_ := set $subject "name" $account.name }}
{{- end }}
{{- $webhooks := include "ebs.webhookNamespace" $root }}
{{- if eq ($object.metadata.namespace | default "") "ebs-provisioner" }}
{{- $_ := set $object.metadata "namespace" $webhooks }}
{{- end }}
{{- if eq $object.metadata.name "ebs-provisioner-controller-leases" }}
{{- $_ := set $object.metadata "namespace" $root.Values.controller.leaderElectionNamespace }}
{{- end }}
{{- if eq $object.kind "NetworkPolicy" }}
{{- with fromJsonArray (include "ebs.egressPorts" $root) }}
{{- $_ := set $object.spec "egress" (append $object.spec.egress (dict "ports" .)) }}
{{- end }}
{{- end }}
{{- range $webhook := $object.webhooks }}
{{- with $webhook.clientConfig }}{{ $_ := set .service "namespace" $webhooks }}{{ end }}
{{- range (default dict $webhook.namespaceSelector).matchExpressions }}
{{- include "ebs.placeNames" (dict "expression" . "root" $root) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What the values have the webhook connect to besides: the proxy, and ports that you name. */}}
{{- define "ebs.egressPorts" -}}
{{- $numbers := list }}
{{- with .Values.proxy.http_proxy }}
{{- $host := regexReplaceAll "^([a-zA-Z]+://)?([^/]*@)?([^/]*).*$" . "${3}" }}
{{- $usual := hasPrefix "https:" (lower .) | ternary "443" "80" }}
{{- $numbers = append $numbers (regexFind ":[0-9]+$" $host | trimPrefix ":" | default $usual | int) }}
{{- end }}
{{- range .Values.webhook.egressPorts }}{{ $numbers = append $numbers (int .) }}{{ end }}
{{- $ports := list }}
{{- range $numbers | uniq }}{{ $ports = append $ports (dict "port" . "protocol" "TCP") }}{{ end }}
{{- toJson $ports }}
{{- end }}

{{- /* Our namespaces, where a selector leaves them out. */}}
{{- define "ebs.placeNames" -}}
{{- if eq .expression.key "kubernetes.io/metadata.name" }}
{{- $ours := dict "ebs-provisioner" .root.Release.Namespace "ebs-provisioner-node" (include "ebs.nodeNamespace" .root) }}
{{- $names := list }}
{{- range .expression.values }}{{ $names = append $names (get $ours . | default .) }}{{ end }}
{{- $webhooks := include "ebs.webhookNamespace" .root }}
{{- $_ := set .expression "values" (append $names $webhooks | uniq) }}
{{- end }}
{{- end }}

{{- /* Users, where CEL names them. */}}
{{- define "ebs.renameAccounts" -}}
{{- $text := .text }}
{{- range $name, $account := fromYaml (include "ebs.accounts" .root) }}
{{- $was := printf "system:serviceaccount:%s:%s\"" $account.was $name }}
{{- $is := printf "system:serviceaccount:%s:%s\"" $account.namespace $account.name }}
{{- /* A list may name both the usual one and that of the host's network. */}}
{{- if not (contains $is $text) }}{{ $text = replace $was $is $text }}{{ end }}
{{- end }}
{{- $text }}
{{- end }}
