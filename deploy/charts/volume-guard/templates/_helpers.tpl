{{- /* One install serves the whole cluster. Roles, policies and webhooks have fixed names, so that a second install fails on the
first one's objects; fullnameOverride names the objects that run, in the namespace of the release. */}}
{{- define "volume-guard.name" -}}
{{ .Values.nameOverride | default "volume-guard" }}
{{- end }}
{{- define "volume-guard.fullname" -}}
{{ .Values.fullnameOverride | default (include "volume-guard.name" .) }}
{{- end }}

{{- /* Selectors are immutable, and name the label app alone. */}}
{{- define "volume-guard.labels" -}}
{{- $own := dict "app" "volume-guard" "app.kubernetes.io/component" "controller" "app.kubernetes.io/part-of" "csi-reclaimer" }}
{{- $_ := set $own "app.kubernetes.io/name" (include "volume-guard.name" .) }}
{{- $_ := set $own "app.kubernetes.io/instance" .Release.Name }}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion }}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service }}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") }}
{{- toYaml (merge (dict) .Values.commonLabels $own) }}
{{- end }}
{{- /* The labels with some that win over them. Takes a dict: root, more. */}}
{{- define "volume-guard.labelsAnd" -}}
{{- toYaml (merge (dict) .more (include "volume-guard.labels" .root | fromYaml)) }}
{{- end }}

{{- define "volume-guard.image" -}}
{{- with .Values.image -}}
{{ with .registry }}{{ . }}/{{ end }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* Not empty if the controller runs, as --controllers has it. Takes a dict: of, the list; name; default. */}}
{{- define "volume-guard.runs" -}}
{{- if has .name .of }}yes{{ else if has (print "-" .name) .of }}{{ else if and .default (has "*" .of) }}yes{{ end }}
{{- end }}
{{- define "volume-guard.intree" -}}
{{ include "volume-guard.runs" (dict "of" .Values.controllers "name" "intree" "default" true) }}
{{- end }}
{{- define "volume-guard.pvc-protection" -}}
{{ include "volume-guard.runs" (dict "of" .Values.controllers "name" "pvc-protection") }}
{{- end }}
{{- define "volume-guard.pv-protection" -}}
{{ include "volume-guard.runs" (dict "of" .Values.controllers "name" "pv-protection") }}
{{- end }}
{{- /* Not empty if a controller runs that adds finalizers, or owner references. */}}
{{- define "volume-guard.controllers" -}}
{{ include "volume-guard.intree" . }}{{ include "volume-guard.pvc-protection" . }}{{ include "volume-guard.pv-protection" . }}
{{- if or .Values.podSafety.enabled .Values.singleNode.enabled .Values.statefulSetClaims.enabled .Values.nodeFencing.enabled }}yes{{ end }}
{{- end }}
{{- /* The value of --controllers. */}}
{{- define "volume-guard.selection" -}}
{{ join "," .Values.controllers }}{{ if .Values.podSafety.enabled }},pod-safety{{ end }}
{{- if .Values.singleNode.enabled }},single-node{{ end }}
{{- if .Values.statefulSetClaims.enabled }},statefulset-claims{{ end }}
{{- if .Values.nodeFencing.enabled }},node-fencing{{ end }}
{{- end }}
{{- define "volume-guard.webhooks" -}}
{{- $hold := and .Values.podSafety.enabled .Values.podSafety.webhook }}
{{- if and (or .Values.webhooks.persistentVolumes .Values.webhooks.pods $hold) (not .Values.dryRun) }}yes{{ end }}
{{- end }}
{{- /* The Secret of the webhooks' certificate if others issue it, and empty if volume-guard does. */}}
{{- define "volume-guard.externalSecret" -}}
{{- with .Values.webhooks.certificate }}
{{- if .certManager.issuerRef.name }}{{ include "volume-guard.fullname" $ }}-certificate{{ else }}{{ .existingSecret }}{{ end }}
{{- end }}
{{- end }}

{{- /* The namespace of the Lease, and the values for the webhooks. */}}
{{- define "volume-guard.env" -}}
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Common parts of the pods of the Deployment and of the Job. Takes a dict: root, affinity. */}}
{{- define "volume-guard.placement" -}}
serviceAccountName: {{ .root.Values.serviceAccount.name }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ if kindIs "string" . }}{{ . }}{{ else }}{{ .name }}{{ end }}
{{- end }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- /* The drivers of a role, as a list; takes a dict: role, root. A test keeps this equal to the output of pkg/admission. */}}
{{- define "volume-guard.drivers" -}}
{{- $role := .role }}
{{- $drivers := list }}
{{- range $driver, $as := .root.Values.protectedDrivers }}
{{- if eq $as $role }}{{ $drivers = append $drivers $driver }}{{ end }}
{{- end }}
{{- toJson $drivers }}
{{- end }}
{{- define "volume-guard.finalizer" -}}
{{- get (dict "owner" "external-provisioner.volume.kubernetes.io/finalizer" "companion" "csi-reclaimer.io/reclaim") . }}
{{- end }}

{{- /* The conditions under which a PV gets the finalizer of a role; takes a dict: role, root. */}}
{{- define "volume-guard.conditions" -}}
- name: claimed
  expression: |-
    has(object.spec.claimRef) && has(object.spec.claimRef.uid) && object.spec.claimRef.uid != ""
- name: policy-delete
  expression: |-
    has(object.spec.persistentVolumeReclaimPolicy) && object.spec.persistentVolumeReclaimPolicy == "Delete"
- name: not-terminating
  expression: |-
    !has(object.metadata.deletionTimestamp)
- name: no-twin
  expression: |-
    !has(object.metadata.labels) || !("csi-reclaimer.io/twin-of" in object.metadata.labels)
- name: driver
  expression: |-
    ((has(object.metadata.annotations) && "pv.kubernetes.io/migrated-to" in object.metadata.annotations
      ? [object.metadata.annotations["pv.kubernetes.io/migrated-to"]] : []) +
     (has(object.metadata.annotations) && "pv.kubernetes.io/provisioned-by" in object.metadata.annotations
      ? [object.metadata.annotations["pv.kubernetes.io/provisioned-by"]]
      : has(object.spec.csi) ? [object.spec.csi.driver] : []))
    .exists(d, d in {{ include "volume-guard.drivers" . | fromJsonArray | toPrettyJson | nindent 4 | trim }})
- name: unprotected
  expression: |-
    !has(object.metadata.finalizers) || !("{{ include "volume-guard.finalizer" .role }}" in object.metadata.finalizers)
{{- end }}
