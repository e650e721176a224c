{{- /* What is wrong in the cluster. `helm template` and a GitOps tool ask no cluster, and see nothing of it. */}}
{{- define "ebs.refuse.cluster" -}}
{{- $wrong := list }}
{{- if lookup "v1" "Namespace" "" "kube-system" }}
{{- $wrong = concat
  (fromJsonArray (include "ebs.refuse.releases" .))
  (fromJsonArray (include "ebs.refuse.ownedClasses" .))
  (fromJsonArray (include "ebs.refuse.namespaces" .))
  (fromJsonArray (include "ebs.refuse.besideStock" .))
  (fromJsonArray (include "ebs.refuse.kinds" .))
  (fromJsonArray (include "ebs.refuse.versions" .)) }}
{{- end }}
{{- toJson $wrong }}
{{- end }}

{{- /* "RELEASE in NAMESPACE" of the chart that has made an object; empty if none or this one has. */}}
{{- define "ebs.otherOwner" -}}
{{- $notes := (.object.metadata).annotations | default dict }}
{{- $release := get $notes "meta.helm.sh/release-name" }}
{{- $namespace := get $notes "meta.helm.sh/release-namespace" }}
{{- if and $release (or (ne $release .root.Release.Name) (ne $namespace .root.Release.Namespace)) -}}
{{ $release }} in namespace {{ $namespace }}
{{- end }}
{{- end }}

{{- /* The same, but empty too if the object is kept: whoever has it kept means to hand it over, with
--take-ownership. */}}
{{- define "ebs.heldBy" -}}
{{- if ne (get ((.object.metadata).annotations | default dict) "helm.sh/resource-policy") "keep" }}
{{- include "ebs.otherOwner" . }}
{{- end }}
{{- end }}

{{- define "ebs.refuse.releases" -}}
{{- $wrong := list }}
{{- range $name := list "ebs-provisioner-controller" "ebs-provisioner-node" "ebs-webhook" }}
{{- $role := lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" $name }}
{{- with include "ebs.otherOwner" (dict "object" $role "root" $) }}
{{- $wrong = append $wrong (printf "this cluster has ebs-provisioner already, as the release %s: a cluster has one; run helm upgrade for that release" .) }}
{{- end }}
{{- end }}
{{- $driver := lookup "storage.k8s.io/v1" "CSIDriver" "" "ebs.csi.aws.com" }}
{{- $owner := include "ebs.heldBy" (dict "object" $driver "root" $) }}
{{- if and $owner (not $wrong) .Values.csiDriver.create (not .Values.nodeComponentOnly) }}
{{- $wrong = append $wrong (printf "the CSIDriver ebs.csi.aws.com belongs to the release %s: have it kept (kubectl annotate csidriver ebs.csi.aws.com helm.sh/resource-policy=keep), then set csiDriver.create=false, or hand it over (docs/install-helm.md)" $owner) }}
{{- end }}
{{- toJson ($wrong | uniq) }}
{{- end }}

{{- /* In two releases, a class is deleted when one of them no longer has it. Hence kept first: this one
may have it too. */}}
{{- define "ebs.refuse.ownedClasses" -}}
{{- $wrong := list }}
{{- $classes := list }}
{{- range .Values.storageClasses }}
{{- $classes = append $classes (list "storage.k8s.io/v1" "StorageClass" .name "leave it out of storageClasses") }}
{{- end }}
{{- if .Values.defaultStorageClass.enabled }}
{{- $classes = append $classes (list "storage.k8s.io/v1" "StorageClass" "ebs-csi-default-sc" "set defaultStorageClass.enabled=false") }}
{{- end }}
{{- if .Capabilities.APIVersions.Has "snapshot.storage.k8s.io/v1" }}
{{- range .Values.volumeSnapshotClasses }}
{{- $classes = append $classes (list "snapshot.storage.k8s.io/v1" "VolumeSnapshotClass" .name "leave it out of volumeSnapshotClasses") }}
{{- end }}
{{- end }}
{{- range $each := ternary list $classes (not (not .Values.nodeComponentOnly)) }}
{{- $class := lookup (index $each 0) (index $each 1) "" (index $each 2) }}
{{- with include "ebs.heldBy" (dict "object" $class "root" $) }}
{{- $wrong = append $wrong (printf "%s %s belongs to the release %s: have it kept (kubectl annotate %s %s helm.sh/resource-policy=keep), then %s, or hand it over (docs/install-helm.md)" (index $each 1) (index $each 2) . (lower (index $each 1)) (index $each 2) (index $each 3)) }}
{{- end }}
{{- end }}
{{- toJson $wrong }}
{{- end }}

{{- /* A namespace of somebody else gets no labels that let its pods do all on their host. */}}
{{- define "ebs.refuse.namespaces" -}}
{{- $wrong := list }}
{{- $created := dict }}
{{- if include "ebs.createsNodeNamespace" . }}{{ $_ := set $created (include "ebs.nodeNamespace" .) "node.createNamespace=false" }}{{ end }}
{{- if include "ebs.createsWebhookNamespace" . }}
{{- $name := include "ebs.webhookNamespace" . }}
{{- $_ := set $created $name (printf "webhook.namespaceOverride=%s" $name) }}
{{- end }}
{{- range $name, $instead := $created }}
{{- with lookup "v1" "Namespace" "" $name }}
{{- $notes := .metadata.annotations | default dict }}
{{- if or (ne (get $notes "meta.helm.sh/release-name") $.Release.Name) (ne (get $notes "meta.helm.sh/release-namespace") $.Release.Namespace) }}
{{- $wrong = append $wrong (printf "namespace %s exists, and this release has not created it: set %s, and allow privileged pods there (kubectl label namespace %s pod-security.kubernetes.io/enforce=privileged)" $name $instead $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $wrong }}
{{- end }}

{{- /* aws-ebs-csi-driver is in kube-system (EKS's add-on), or where its release is: the driver object
says it until this release has taken that over, and from then on where its leases are. */}}
{{- define "ebs.refuse.besideStock" -}}
{{- $wrong := list }}
{{- $driver := lookup "storage.k8s.io/v1" "CSIDriver" "" "ebs.csi.aws.com" }}
{{- $namespaces := list "kube-system" .Values.controller.leaderElectionNamespace | uniq }}
{{- with get ((($driver).metadata).annotations | default dict) "meta.helm.sh/release-namespace" }}
{{- $namespaces = append $namespaces . | uniq }}
{{- end }}
{{- range $namespace := $namespaces }}
{{- $controller := lookup "apps/v1" "Deployment" $namespace "ebs-csi-controller" }}
{{- if and $controller (not $.Values.nodeComponentOnly) (gt (int (dig "spec" "replicas" 1 $controller)) 0) }}
{{- if not $.Values.besideStock.controller }}
{{- $wrong = append $wrong (printf "aws-ebs-csi-driver's controller runs here too (Deployment %s/ebs-csi-controller): remove it with nodeComponentOnly=true in its chart, or set nodeComponentOnly=true in this one; to change over while it runs, set besideStock.controller=true (docs/migrate.md)" $namespace) }}
{{- else if ne $namespace $.Values.controller.leaderElectionNamespace }}
{{- $wrong = append $wrong (printf "aws-ebs-csi-driver keeps its leases in %s: set controller.leaderElectionNamespace to it, or both controllers work at the same time" $namespace) }}
{{- end }}
{{- range $controller.spec.template.spec.containers }}
{{- if and $.Values.besideStock.controller (has .name (list "csi-provisioner" "csi-attacher" "csi-resizer" "csi-snapshotter")) }}
{{- /* Their default, and of several the last counts. */}}
{{- $election := "--leader-election=false" }}
{{- range .args }}{{ if regexMatch "^--?leader-election(=|$)" . }}{{ $election = . }}{{ end }}{{ end }}
{{- if not (regexMatch "^--?leader-election(=(1|t|T|TRUE|true|True))?$" $election) }}
{{- /* Its chart has no value for the other two, whose election it turns on itself. */}}
{{- $value := ternary (printf " (sidecars.%s.leaderElection.enabled=true in its chart)" (trimPrefix "csi-" .name)) "" (has .name (list "csi-provisioner" "csi-attacher")) }}
{{- $wrong = append $wrong (printf "%s of aws-ebs-csi-driver's controller (Deployment %s/ebs-csi-controller) runs without --leader-election=true, so both controllers would work at the same time: give it that argument first%s" .name $namespace $value) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- $nodes := lookup "apps/v1" "DaemonSet" $namespace "ebs-csi-node" }}
{{- if and $nodes $.Values.node.enableLinux (not $.Values.besideStock.node) }}
{{- $wrong = append $wrong (printf "aws-ebs-csi-driver's node plugin runs here too (DaemonSet %s/ebs-csi-node), and both answer on the same socket: remove it with node.enableLinux=false in its chart, or set node.enableLinux=false in this one; if they have different nodes, set besideStock.node=true" $namespace) }}
{{- end }}
{{- end }}
{{- toJson $wrong }}
{{- end }}

{{- /* CRDs of others. */}}
{{- define "ebs.refuse.kinds" -}}
{{- $wrong := list }}
{{- $has := .Capabilities.APIVersions }}
{{- if and .Values.volumeSnapshotClasses (not .Values.nodeComponentOnly) (not ($has.Has "snapshot.storage.k8s.io/v1")) }}
{{- $wrong = append $wrong "volumeSnapshotClasses: this cluster has no VolumeSnapshotClass (snapshot.storage.k8s.io/v1); install the CRDs and the snapshot-controller of external-snapshotter first, or leave the list empty" }}
{{- end }}
{{- if and .Values.webhook.enabled (eq .Values.webhook.certificates "cert-manager") (not ($has.Has "cert-manager.io/v1")) }}
{{- $wrong = append $wrong "webhook.certificates=cert-manager: this cluster has no cert-manager (cert-manager.io/v1); install it first, or set certificates=own" }}
{{- end }}
{{- if and .Values.prometheusRule.enabled (not ($has.Has "monitoring.coreos.com/v1")) }}
{{- $wrong = append $wrong "prometheusRule.enabled: this cluster has no PrometheusRule (monitoring.coreos.com/v1); install the Prometheus operator first, or give docs/alerts.md's rules to Prometheus as a file" }}
{{- end }}
{{- $monitored := or (and .Values.controller.enableMetrics .Values.controller.serviceMonitor.forceEnable) (and .Values.node.enableMetrics .Values.node.serviceMonitor.forceEnable) (and .Values.webhook.enabled .Values.webhook.enableMetrics .Values.webhook.serviceMonitor.forceEnable) }}
{{- if and $monitored (not ($has.Has "monitoring.coreos.com/v1")) }}
{{- $wrong = append $wrong "serviceMonitor.forceEnable: this cluster has no ServiceMonitor (monitoring.coreos.com/v1); install the Prometheus operator first, or leave forceEnable false" }}
{{- end }}
{{- toJson $wrong }}
{{- end }}

{{- define "ebs.refuse.versions" -}}
{{- $wrong := list }}
{{- range $where := list (list "Deployment" .Release.Namespace "ebs-provisioner-controller") (list "DaemonSet" (include "ebs.nodeNamespace" .) "ebs-provisioner-node") (list "Deployment" (include "ebs.webhookNamespace" .) "ebs-webhook") }}
{{- $workload := lookup "apps/v1" (index $where 0) (index $where 1) (index $where 2) }}
{{- $was := get ((($workload).metadata).labels | default dict) "app.kubernetes.io/version" }}
{{- if and $was (not $.Values.allowSkippedVersions) (regexMatch "^[0-9]+\\.[0-9]+\\." $was) }}
{{- $from := semver $was }}
{{- $to := semver $.Chart.AppVersion }}
{{- $step := sub (int64 $to.Minor) (int64 $from.Minor) }}
{{- if or (ne $from.Major $to.Major) (gt $step 1) (lt $step -1) }}
{{- $wrong = append $wrong (printf "version %s is installed, and this is %s: change by one minor version at a time; if CHANGELOG.md says that nothing is between them, set allowSkippedVersions=true" $was $.Chart.AppVersion) }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson ($wrong | uniq) }}
{{- end }}
