{{- /* What tells the nodes of a group from the others of `node`, as JSON: "apart" if their selectors
contradict each other, and else the labels that only the group selects. Takes (dict "group" … "root" $). */}}
{{- define "ebs.groupLabels" -}}
{{- $selector := .root.Values.node.nodeSelector | default dict }}
{{- $apart := false }}
{{- $labels := dict }}
{{- range $key, $value := (.group | default dict).nodeSelector }}
{{- if not (hasKey $selector $key) }}{{ $_ := set $labels $key $value }}
{{- else if ne (get $selector $key) $value }}{{ $apart = true }}
{{- end }}
{{- end }}
{{- toJson (dict "apart" $apart "labels" $labels) }}
{{- end }}

{{- /* Which nodes `node` leaves to groups: those that a group selects by one label more. */}}
{{- define "ebs.nodeAffinity" -}}
{{- $affinity := deepCopy (.Values.node.affinity | default dict) }}
{{- $others := list }}
{{- range $group := .Values.additionalDaemonSets }}
{{- $found := fromJson (include "ebs.groupLabels" (dict "group" $group "root" $)) }}
{{- if and (not $found.apart) (eq (len $found.labels) 1) }}
{{- range $key, $value := $found.labels }}
{{- $others = append $others (dict "key" $key "operator" "NotIn" "values" (list $value)) }}
{{- end }}
{{- end }}
{{- end }}
{{- if $others }}
{{- $nodes := get $affinity "nodeAffinity" | default dict }}
{{- $required := get $nodes "requiredDuringSchedulingIgnoredDuringExecution" | default dict }}
{{- $terms := list }}
{{- range get $required "nodeSelectorTerms" | default (list (dict)) }}
{{- $terms = append $terms (merge (dict "matchExpressions" (concat (.matchExpressions | default list) $others)) .) }}
{{- end }}
{{- $_ := set $required "nodeSelectorTerms" $terms }}
{{- $_ := set $nodes "requiredDuringSchedulingIgnoredDuringExecution" $required }}
{{- $_ := set $affinity "nodeAffinity" $nodes }}
{{- end }}
{{- toYaml $affinity }}
{{- end }}

{{- /* One DaemonSet with its options. Takes (dict "name" … "component" … "values" … "root" $). */}}
{{- define "ebs.daemonSet" -}}
{{- $values := .values }}
{{- $options := include "ebs.nodeOptions" . }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
  namespace: {{ include "ebs.nodeNamespace" .root | quote }}
  labels:
    {{- include "ebs.commonLabels" .root | nindent 4 }}
data:
  {{- $options | nindent 2 }}
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .name }}
  namespace: {{ include "ebs.nodeNamespace" .root | quote }}
  labels:
    {{- include "ebs.commonLabels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
  {{- with $values.daemonSetAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- if not (kindIs "invalid" $values.revisionHistoryLimit) }}
  revisionHistoryLimit: {{ $values.revisionHistoryLimit }}
  {{- end }}
  {{- with $values.updateStrategy }}
  updateStrategy:
    {{- include "ebs.updateStrategy" . | nindent 4 }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "ebs.selector" .component | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "ebs.podLabels" . | nindent 8 }}
      annotations:
        checksum/config: {{ sha256sum $options }}
        {{- with $values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ $values.serviceAccount.name | quote }}
      {{- /* Less would kill an mkfs or an fsck; the stock chart's 30 is no wish. */}}
      terminationGracePeriodSeconds: {{ max 120 (int $values.terminationGracePeriodSeconds) }}
      {{- include "ebs.podSpec" . | nindent 6 }}
      {{- if $values.hostNetwork }}
      hostNetwork: true
      {{- end }}
      tolerations:
        {{- if $values.tolerateAllTaints }}
        - operator: Exists
        {{- else }}
        {{- with $values.tolerations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        # The plugin must run before pods with volumes can, and until they have left a node.
        - {key: ebs.csi.aws.com/agent-not-ready, operator: Exists}
        - {key: ToBeDeletedByClusterAutoscaler, operator: Exists}
        - {key: karpenter.sh/disrupted, operator: Exists}
        {{- end }}
      containers:
        - name: node
          {{- include "ebs.container" . | nindent 10 }}
          args:
            - node
            - --metrics-address=:9810
            - --log-format={{ $values.loggingFormat }}
            {{- with $values.additionalArgs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          envFrom:
            - configMapRef:
                name: {{ .name }}
            {{- with $values.envFrom }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          env:
            # Tells the plugin which Node and which VolumeAttachments are its own.
            - name: EBS_PROVISIONER_NODE_NODE_NAME
              valueFrom:
                fieldRef:
                  fieldPath: spec.nodeName
            # The root file system is read-only, so bytecode cannot be written.
            - name: PYTHONDONTWRITEBYTECODE
              value: "1"
            {{- with $values.env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - name: metrics
              containerPort: 9810
          livenessProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /readyz, port: metrics}
            periodSeconds: 5
            timeoutSeconds: 5
          lifecycle:
            preStop:
              exec:
                # On a node that goes away, the plugin stays until its volumes are unmounted. The hook
                # asks the same API server.
                command: {{ concat (list "ebs-provisioner" "node") ($values.additionalArgs | default list) (list "drain" "--timeout=30s") | toJson }}
          volumeMounts:
            # The path is the same as on the host, because kubelet's requests name it.
            - name: kubelet
              mountPath: {{ $values.kubeletPath | quote }}
              mountPropagation: Bidirectional
            - name: dev
              mountPath: /dev
            {{- if $values.selinux }}
            - {name: selinux, mountPath: /sys/fs/selinux, readOnly: true}
            - {name: selinux-config, mountPath: /etc/selinux, readOnly: true}
            {{- end }}
            {{- with $values.volumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: kubelet
          hostPath: {path: {{ $values.kubeletPath | quote }}, type: Directory}
        - name: dev
          hostPath: {path: /dev, type: Directory}
        {{- if $values.selinux }}
        - name: selinux
          hostPath: {path: /sys/fs/selinux, type: Directory}
        - name: selinux-config
          hostPath: {path: /etc/selinux, type: Directory}
        {{- end }}
        {{- with $values.volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end }}
