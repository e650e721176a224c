{{- /* What is wrong with the values by themselves. Each template gives a list of sentences, as JSON. */}}

{{- define "ebs.refuse.image" -}}
{{- $wrong := list }}
{{- $image := .Values.image }}
{{- if hasSuffix "aws-ebs-csi-driver" $image.repository }}
{{- $wrong = append $wrong (printf "image.repository is %s, the stock driver's image: name the repository of ebs-provisioner's" $image.repository) }}
{{- else if regexMatch "[:@][^/]*$" $image.repository }}
{{- $wrong = append $wrong (printf "image.repository is %s: set the tag as image.tag, and a digest as image.digest" $image.repository) }}
{{- end }}
{{- if and $image.containerRegistry (not (hasSuffix "/" $image.containerRegistry)) }}
{{- $wrong = append $wrong (printf "image.containerRegistry is %s: it must end in a slash, because image.repository follows it" $image.containerRegistry) }}
{{- end }}
{{- toJson $wrong }}
{{- end }}

{{- /* Keys of the stock chart that would change what is installed, and cannot here. */}}
{{- define "ebs.refuse.stock" -}}
{{- $wrong := list }}
{{- $c := .Values.controller }}
{{- $n := .Values.node }}
{{- if .Values.fips }}
{{- $wrong = append $wrong "fips: this image has no validated cryptographic module; for AWS's FIPS endpoints alone, set controller.env to AWS_USE_FIPS_ENDPOINT=true" }}
{{- end }}
{{- if or .Values.nameOverride .Values.fullnameOverride }}
{{- $wrong = append $wrong "nameOverride and fullnameOverride: the names are fixed, because a cluster has one driver ebs.csi.aws.com; leave them empty" }}
{{- end }}
{{- if .Values.useOldCSIDriver }}
{{- $wrong = append $wrong "useOldCSIDriver: fsGroupPolicy is always File; leave it false" }}
{{- end }}
{{- if $c.enableNodeLocalVolumes }}
{{- $wrong = append $wrong "controller.enableNodeLocalVolumes: volumes attached by others are not offered to claims here; leave it false" }}
{{- end }}
{{- if eq (toString $c.extraCreateMetadata) "false" }}
{{- $wrong = append $wrong "controller.extraCreateMetadata: volumes are always tagged with their claim; leave it true" }}
{{- end }}
{{- $traced := or $c.otelTracing $n.otelTracing }}
{{- range .Values.additionalDaemonSets }}{{ $traced = or $traced (. | default dict).otelTracing }}{{ end }}
{{- if $traced }}
{{- $wrong = append $wrong "controller.otelTracing and node.otelTracing: there are no traces; use the metrics, and leave them empty" }}
{{- end }}
{{- range $sidecar := list "provisioner" "attacher" }}
{{- $elects := ((get ($.Values.sidecars | default dict) $sidecar | default dict).leaderElection | default dict).enabled }}
{{- if and $.Values.besideStock.controller (eq (toString $elects) "false") }}
{{- $wrong = append $wrong (printf "besideStock.controller: sidecars.%s.leaderElection.enabled is false, so the stock controller asks for no lease, and both controllers would work at the same time; set it to true, and upgrade the stock chart with it first" $sidecar) }}
{{- end }}
{{- end }}
{{- if $c.httpEndpoint }}
{{- $wrong = append $wrong "controller.httpEndpoint: metrics are always on port 8080; use controller.enableMetrics" }}
{{- end }}
{{- toJson $wrong }}
{{- end }}

{{- /* A selector finds its pods by them, and Helm its objects. */}}
{{- define "ebs.refuse.labels" -}}
{{- $wrong := list }}
{{- $ours := keys (fromYaml (include "ebs.ownLabels" .)) }}
{{- $ours = append $ours "app.kubernetes.io/component" }}
{{- $given := dict "customLabels" .Values.customLabels "controller.podLabels" .Values.controller.podLabels }}
{{- $_ := set $given "node.podLabels" .Values.node.podLabels }}
{{- $_ := set $given "webhook.podLabels" .Values.webhook.podLabels }}
{{- range $name, $group := .Values.additionalDaemonSets }}
{{- $_ := set $given (printf "additionalDaemonSets.%s.podLabels" $name) ($group | default dict).podLabels }}
{{- end }}
{{- range $path, $labels := $given }}
{{- range $key, $_ := $labels }}
{{- if has $key $ours }}
{{- $wrong = append $wrong (printf "%s: %s is set by the chart: choose another key" $path $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $wrong }}
{{- end }}

{{- /* A node would have the controller's rights, and the webhook's policy would limit the controller. */}}
{{- define "ebs.refuse.accounts" -}}
{{- $wrong := list }}
{{- $namespaces := dict "controller" .Release.Namespace "node" (include "ebs.nodeNamespace" .) "webhook" (include "ebs.webhookNamespace" .) }}
{{- $seen := dict }}
{{- range $component := fromJsonArray (include "ebs.components" .) }}
{{- $name := (get $.Values $component).serviceAccount.name }}
{{- $account := printf "%s in namespace %s" $name (get $namespaces $component) }}
{{- with get $seen $account }}
{{- $wrong = append $wrong (printf "%s.serviceAccount.name and %s.serviceAccount.name are both %s: each program has rights and limits of its own, and would have the other's too; name another account" . $component $account) }}
{{- end }}
{{- $_ := set $seen $account $component }}
{{- end }}
{{- toJson $wrong }}
{{- end }}

{{- /* "true" for 0 and "0%", not for null. */}}
{{- define "ebs.isZero" -}}
{{- if regexMatch "^0+%?$" (toString .) }}true{{ end }}
{{- end }}

{{- /* A budget that lets no pod be evicted would keep the drain of a node from ending. Takes the values
of the controller. */}}
{{- define "ebs.refuse.budget" -}}
{{- $wrong := list }}
{{- $budget := .podDisruptionBudget }}
{{- $min := toString $budget.minAvailable }}
{{- $needed := int64 $budget.minAvailable }}
{{- if hasSuffix "%" $min }}
{{- /* Kubernetes rounds up. */}}
{{- $needed = div (add (mul (trimSuffix "%" $min) .replicaCount) 99) 100 }}
{{- end }}
{{- if not (or (kindIs "invalid" $budget.minAvailable) (kindIs "invalid" $budget.maxUnavailable)) }}
{{- $wrong = append $wrong "controller.podDisruptionBudget: minAvailable and maxUnavailable exclude each other; leave one out" }}
{{- else if include "ebs.isZero" $budget.maxUnavailable }}
{{- $wrong = append $wrong (printf "controller.podDisruptionBudget.maxUnavailable is %v: no pod could be evicted, and no drain of its node would end; set it to 1" $budget.maxUnavailable) }}
{{- else if ge $needed (int64 .replicaCount) }}
{{- $wrong = append $wrong (printf "controller.podDisruptionBudget.minAvailable is %v, and controller.replicaCount %v: no pod could be evicted, and no drain of its node would end; set maxUnavailable to 1 instead" $budget.minAvailable .replicaCount) }}
{{- end }}
{{- toJson $wrong }}
{{- end }}

{{- define "ebs.refuse.controller" -}}
{{- $wrong := list }}
{{- $c := .Values.controller }}
{{- $id := tpl ($c.k8sTagClusterId | default "") . }}
{{- if and $c.initializeNodes (not $id) }}
{{- $wrong = append $wrong "controller.initializeNodes needs controller.k8sTagClusterId: only instances with that tag are Nodes of this cluster" }}
{{- end }}
{{- if regexMatch "[=,\\s]" $id }}
{{- $wrong = append $wrong (printf "controller.k8sTagClusterId is %q: it is part of a tag's key, so it may hold no space, comma or equals sign" $id) }}
{{- end }}
{{- range $name, $region := dict "controller.region" $c.region "webhook.region" .Values.webhook.region }}
{{- if regexMatch "^([a-z]{2}|eusc)(-[a-z]+)+-[0-9]+[a-z]$" ($region | default "") }}
{{- $wrong = append $wrong (printf "%s is %s, a zone: its region is %s" $name $region (regexReplaceAll "[a-z]$" $region "")) }}
{{- else if and $region (not (regexMatch "^([a-z]{2}|eusc)(-[a-z]+)+-[0-9]+$" $region)) }}
{{- $wrong = append $wrong (printf "%s is %q, which is no region: expected one like eu-central-1, or nothing, which has it found" $name $region) }}
{{- end }}
{{- end }}
{{- if and $c.reconcileExtraVolumeTags (not $c.extraVolumeTags) }}
{{- $wrong = append $wrong "controller.reconcileExtraVolumeTags needs controller.extraVolumeTags" }}
{{- end }}
{{- range $key, $value := $c.extraVolumeTags }}
{{- if or (contains "," (toString $value)) (regexMatch "[=,]" $key) }}
{{- $wrong = append $wrong (printf "controller.extraVolumeTags: %s=%v has a comma, or an equals sign in its key, which --extra-tags cannot express" $key $value) }}
{{- end }}
{{- if hasPrefix "aws:" (lower $key) }}
{{- $wrong = append $wrong (printf "controller.extraVolumeTags: %s is reserved: AWS sets the tags that begin with aws:" $key) }}
{{- end }}
{{- end }}
{{- $rolling := ($c.updateStrategy).rollingUpdate | default dict }}
{{- if and (include "ebs.isZero" $rolling.maxSurge) (include "ebs.isZero" $rolling.maxUnavailable) }}
{{- $wrong = append $wrong "controller.updateStrategy.rollingUpdate: maxSurge and maxUnavailable are both 0, so no pod could ever be replaced" }}
{{- end }}
{{- if $c.podDisruptionBudget.enabled }}
{{- $wrong = concat $wrong (fromJsonArray (include "ebs.refuse.budget" $c)) }}
{{- end }}
{{- $wrong = concat $wrong (fromJsonArray (include "ebs.refuse.arguments" (dict "path" "controller" "program" "controller" "values" $c "root" $))) }}
{{- toJson $wrong }}
{{- end }}

{{- /* Arguments that the program does not know, as another's, would end it at its start; those that the
chart sets, as arguments or as variables, would contradict its other objects. `envFrom` is not read.
Takes (dict "path" … "program" … "values" … "root" $). */}}
{{- define "ebs.refuse.arguments" -}}
{{- $wrong := list }}
{{- $file := fromYaml (.root.Files.Get "options.yaml") }}
{{- $known := splitList " " (get $file .program) }}
{{- $set := get $file.set .program }}
{{- $prefix := get $file.variables .program }}
{{- $depends := "is set by the chart, because its other objects depend on it" }}
{{- range .values.additionalArgs }}
{{- $option := first (splitList "=" .) }}
{{- if not (has $option $known) }}
{{- $wrong = append $wrong (printf "%s.additionalArgs: %s is no option of this program, docs/reference/options.md lists them" $.path $option) }}
{{- else if hasKey $set $option }}
{{- $wrong = append $wrong (printf "%s.additionalArgs: %s %s: %s" $.path $option $depends (get $set $option)) }}
{{- end }}
{{- end }}
{{- range .values.env }}
{{- $option := .name }}
{{- if hasPrefix $prefix .name }}{{ $option = printf "--%s" (trimPrefix $prefix .name | lower | replace "_" "-") }}{{ end }}
{{- if hasKey $set $option }}
{{- $wrong = append $wrong (printf "%s.env: %s %s: %s" $.path .name $depends (get $set $option)) }}
{{- end }}
{{- end }}
{{- toJson $wrong }}
{{- end }}

{{- /* Of a component that nobody scrapes, EBSNoLeader would fire for ever, and the others never. */}}
{{- define "ebs.refuse.alerts" -}}
{{- $wrong := list }}
{{- if .Values.prometheusRule.enabled }}
{{- range $name := fromJsonArray (include "ebs.components" .) }}
{{- if not (get $.Values $name).enableMetrics }}
{{- $wrong = append $wrong (printf "prometheusRule.enabled needs %s.enableMetrics: the alerts are about what Prometheus reads there" $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $wrong }}
{{- end }}

{{- define "ebs.refuse.classes" -}}
{{- $wrong := list }}
{{- $defaults := list }}
{{- $names := list }}
{{- range .Values.storageClasses }}
{{- if has .name $names }}{{ $wrong = append $wrong (printf "storageClasses names %s twice" .name) }}{{ end }}
{{- $names = append $names .name }}
{{- if eq (toString (get (.annotations | default dict) "storageclass.kubernetes.io/is-default-class")) "true" }}
{{- $defaults = append $defaults .name }}
{{- end }}
{{- end }}
{{- if .Values.defaultStorageClass.enabled }}
{{- $defaults = append $defaults "ebs-csi-default-sc" }}
{{- if has "ebs-csi-default-sc" $names }}{{ $wrong = append $wrong "storageClasses has ebs-csi-default-sc, which defaultStorageClass.enabled makes" }}{{ end }}
{{- end }}
{{- if gt (len $defaults) 1 }}
{{- $wrong = append $wrong (printf "%s would all be the cluster's default StorageClass: only one can be" (join " and " $defaults)) }}
{{- end }}
{{- $period := int .Values.nodeAllocatableUpdatePeriodSeconds }}
{{- if and (gt $period 0) (lt $period 10) }}
{{- $wrong = append $wrong (printf "nodeAllocatableUpdatePeriodSeconds is %d: Kubernetes allows at least 10, -1 leaves it to the chart, and 0 leaves it out" $period) }}
{{- end }}
{{- toJson $wrong }}
{{- end }}

{{- define "ebs.refuse.webhook" -}}
{{- $wrong := list }}
{{- with .Values.webhook }}
{{- if .enabled }}
{{- if and (eq .certificates "provided") (not .caBundle) }}
{{- $wrong = append $wrong "webhook.certificates=provided needs webhook.caBundle: without it no API server trusts the webhook" }}
{{- end }}
{{- if and .caBundle (ne .certificates "provided") }}
{{- $wrong = append $wrong (printf "webhook.caBundle is for certificates=provided: with %s, it is filled in later" .certificates) }}
{{- end }}
{{- if and .certManager.issuerRef (ne .certificates "cert-manager") }}
{{- $wrong = append $wrong "webhook.certManager.issuerRef is for certificates=cert-manager" }}
{{- end }}
{{- $wrong = concat $wrong (fromJsonArray (include "ebs.refuse.arguments" (dict "path" "webhook" "program" "webhook" "values" . "root" $))) }}
{{- else }}
{{- range $key, $set := dict "strict" .strict "zoneGuard" .zoneGuard "hostNetwork" .hostNetwork "callerTokenSecret" .callerTokenSecret }}
{{- if $set }}
{{- $wrong = append $wrong (printf "webhook.%s is set, and webhook.enabled is false: set both or neither" $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $wrong }}
{{- end }}
