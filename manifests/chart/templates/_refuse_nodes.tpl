{{- /* What is wrong with the values of node plugins. Each template gives a list of sentences, as JSON. */}}

{{- define "ebs.refuse.metadata" -}}
{{- $wrong := list }}
{{- if not (has (.values.metadataSources | default "") (list "" "imds" "imds,kubernetes" "kubernetes")) }}
{{- $wrong = append $wrong (printf "%s.metadataSources is %q: the node plugin asks the instance's metadata, then the Node object (\"\" or \"imds,kubernetes\"), or only the latter (\"kubernetes\")" .path .values.metadataSources) }}
{{- end }}
{{- toJson $wrong }}
{{- end }}

{{- /* What nodes are selected by, as JSON: terms, of which a node must meet one, and of that all
expressions. Takes (dict "nodeSelector" … "affinity" …). */}}
{{- define "ebs.terms" -}}
{{- $labels := list }}
{{- range $key, $value := .nodeSelector }}
{{- $labels = append $labels (dict "key" $key "operator" "In" "values" (list $value)) }}
{{- end }}
{{- $required := ((.affinity).nodeAffinity).requiredDuringSchedulingIgnoredDuringExecution | default dict }}
{{- $terms := list }}
{{- range $required.nodeSelectorTerms | default (list dict) }}
{{- $terms = append $terms (concat $labels (.matchExpressions | default list)) }}
{{- end }}
{{- toJson $terms }}
{{- end }}

{{- /* "true" if no node meets both expressions, and says nothing of Gt and Lt. Takes a list of them. */}}
{{- define "ebs.exclude" -}}
{{- $one := first . }}
{{- $other := last . }}
{{- $values := $one.values | default list }}
{{- $shared := list }}
{{- range $values }}
{{- if has . ($other.values | default list) }}{{ $shared = append $shared . }}{{ end }}
{{- end }}
{{- $both := printf "%s %s" $one.operator $other.operator }}
{{- if ne $one.key $other.key }}
{{- else if has $both (list "In DoesNotExist" "Exists DoesNotExist") }}true
{{- else if and (eq $both "In In") (not $shared) }}true
{{- else if and (eq $both "In NotIn") (eq (len $shared) (len $values)) }}true
{{- end }}
{{- end }}

{{- /* "true" if no node can be selected by both. Takes a list of two results of ebs.terms. */}}
{{- define "ebs.apart" -}}
{{- $apart := true }}
{{- range $one := fromJsonArray (first .) }}
{{- range $other := fromJsonArray (last $) }}
{{- $exclude := false }}
{{- range $left := $one }}
{{- range $right := $other }}
{{- if or (include "ebs.exclude" (list $left $right)) (include "ebs.exclude" (list $right $left)) }}{{ $exclude = true }}{{ end }}
{{- end }}
{{- end }}
{{- if not $exclude }}{{ $apart = false }}{{ end }}
{{- end }}
{{- end }}
{{- if $apart }}true{{ end }}
{{- end }}

{{- /* Groups on nodes that another has too; one without selectors has its own sentence. */}}
{{- define "ebs.refuse.overlap" -}}
{{- $wrong := list }}
{{- $node := include "ebs.terms" (dict "nodeSelector" .Values.node.nodeSelector "affinity" (fromYaml (include "ebs.nodeAffinity" .))) }}
{{- $seen := dict }}
{{- range $name, $group := .Values.additionalDaemonSets }}
{{- $own := $group | default dict }}
{{- if or $own.nodeSelector $own.affinity }}
{{- $path := printf "additionalDaemonSets.%s" $name }}
{{- $terms := include "ebs.terms" (mergeOverwrite (deepCopy $.Values.node) (deepCopy $own)) }}
{{- $labels := (fromJson (include "ebs.groupLabels" (dict "group" $own "root" $))).labels }}
{{- if include "ebs.apart" (list $node $terms) }}
{{- else if and $own.nodeSelector (not $labels) }}
{{- $wrong = append $wrong (printf "%s and node can select the same nodes: two node plugins on a node answer on the same socket" $path) }}
{{- else }}
{{- $by := gt (len $labels) 1 | ternary "selects by more than one label" "selects by its affinity alone" }}
{{- $wrong = append $wrong (printf "%s %s, so `node` cannot leave its nodes out by itself: give node a nodeSelector or an affinity without them" $path $by) }}
{{- end }}
{{- range $other, $others := $seen }}
{{- if not (include "ebs.apart" (list $others $terms)) }}
{{- $wrong = append $wrong (printf "%s and %s can select the same nodes: two node plugins on a node answer on the same socket; give one of them an affinity without the other's nodes" $other $path) }}
{{- end }}
{{- end }}
{{- $_ := set $seen $path $terms }}
{{- end }}
{{- end }}
{{- toJson $wrong }}
{{- end }}

{{- define "ebs.refuse.nodes" -}}
{{- $wrong := fromJsonArray (include "ebs.refuse.overlap" .) }}
{{- $groups := dict "node" .Values.node }}
{{- range $name, $group := .Values.additionalDaemonSets }}
{{- $merged := mergeOverwrite (deepCopy $.Values.node) (deepCopy ($group | default dict)) }}
{{- $_ := set $groups (printf "additionalDaemonSets.%s" $name) $merged }}
{{- $own := $group | default dict }}
{{- if not (or $own.nodeSelector $own.affinity) }}
{{- $wrong = append $wrong (printf "additionalDaemonSets.%s has no nodeSelector or affinity of its own, so it would run on the nodes of `node` too: two node plugins on a node answer on the same socket" $name) }}
{{- end }}
{{- if $own.serviceAccount }}
{{- $wrong = append $wrong (printf "additionalDaemonSets.%s.serviceAccount: all groups have the account of `node`, set node.serviceAccount" $name) }}
{{- end }}
{{- if and (hasKey $own "enableLinux") (ne $own.enableLinux $.Values.node.enableLinux) }}
{{- $wrong = append $wrong (printf "additionalDaemonSets.%s.enableLinux is %v, and node.enableLinux is %v: all groups are installed or none; remove a group that you do not want" $name $own.enableLinux $.Values.node.enableLinux) }}
{{- end }}
{{- if and $own.namespaceOverride (ne $own.namespaceOverride $.Values.node.namespaceOverride) }}
{{- $wrong = append $wrong (printf "additionalDaemonSets.%s.namespaceOverride: all groups are in the namespace of `node`" $name) }}
{{- end }}
{{- if and (hasKey $own "createNamespace") (ne $own.createNamespace $.Values.node.createNamespace) }}
{{- $wrong = append $wrong (printf "additionalDaemonSets.%s.createNamespace: all groups are in the namespace of `node`, set node.createNamespace" $name) }}
{{- end }}
{{- if and $own.selinux (not $.Values.node.selinux) }}
{{- $wrong = append $wrong (printf "additionalDaemonSets.%s.selinux is true, and node.selinux is false: the CSIDriver object says for all nodes that volumes are mounted with a label; set node.selinux" $name) }}
{{- end }}
{{- end }}
{{- range $path, $group := $groups }}
{{- $limit := not (or (kindIs "invalid" $group.volumeAttachLimit) (lt (int $group.volumeAttachLimit) 0)) }}
{{- $reserved := not (or (kindIs "invalid" $group.reservedVolumeAttachments) (lt (int $group.reservedVolumeAttachments) 0)) }}
{{- if and $limit $reserved }}
{{- $wrong = append $wrong (printf "%s: volumeAttachLimit and reservedVolumeAttachments exclude each other: the first is the number, the second is taken off the instance type's" $path) }}
{{- end }}
{{- if not ($group.containerSecurityContext).privileged }}
{{- $wrong = append $wrong (printf "%s.containerSecurityContext.privileged must be true: Kubernetes lets no other container mount volumes for pods" $path) }}
{{- end }}
{{- if contains "$(" (join " " ($group.additionalArgs | default list)) }}
{{- $wrong = append $wrong (printf "%s.additionalArgs refers to a variable, which Kubernetes would not put into the same arguments of the preStop hook: set the option in %s.env, as EBS_PROVISIONER_NODE_ and its name in capitals" $path $path) }}
{{- end }}
{{- if not (hasPrefix "/" $group.kubeletPath) }}
{{- $wrong = append $wrong (printf "%s.kubeletPath is %q: expected an absolute path, kubelet's --root-dir" $path $group.kubeletPath) }}
{{- end }}
{{- if (($group.updateStrategy).rollingUpdate).maxSurge }}
{{- $wrong = append $wrong (printf "%s.updateStrategy.rollingUpdate.maxSurge must be 0: two node plugins on a node answer on the same socket" $path) }}
{{- end }}
{{- if include "ebs.isZero" (($group.updateStrategy).rollingUpdate).maxUnavailable }}
{{- $wrong = append $wrong (printf "%s.updateStrategy.rollingUpdate.maxUnavailable is %v, and maxSurge must be 0: no pod could ever be replaced" $path $group.updateStrategy.rollingUpdate.maxUnavailable) }}
{{- end }}
{{- $given := eq $path "node" | ternary $.Values.node (get ($.Values.additionalDaemonSets | default dict) (trimPrefix "additionalDaemonSets." $path)) }}
{{- $wrong = concat $wrong (fromJsonArray (include "ebs.refuse.arguments" (dict "path" $path "program" "node" "values" ($given | default dict) "root" $))) }}
{{- $wrong = concat $wrong (fromJsonArray (include "ebs.refuse.metadata" (dict "path" $path "values" ($given | default dict)))) }}
{{- end }}
{{- if and .Values.nodeComponentOnly (not .Values.node.enableLinux) (not .Values.webhook.enabled) }}
{{- $wrong = append $wrong "nodeComponentOnly=true and node.enableLinux=false leave nothing to install" }}
{{- end }}
{{- toJson ($wrong | uniq) }}
{{- end }}
