{{- /* One install is for the whole cluster, so all names are fixed: a second one is refused by the first's. */}}

{{- define "volume-guard.labels" -}}
app: volume-guard
app.kubernetes.io/name: volume-guard
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "volume-guard.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
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
{{- /* Whatever puts finalizers on. */}}
{{- define "volume-guard.controllers" -}}
{{ include "volume-guard.intree" . }}{{ include "volume-guard.pvc-protection" . }}{{ include "volume-guard.pv-protection" . }}
{{- end }}
{{- define "volume-guard.webhooks" -}}
{{- if and (or .Values.webhooks.persistentVolumes .Values.webhooks.pods) (not .Values.dryRun) }}yes{{ end }}
{{- end }}

{{- define "volume-guard.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}
{{- define "volume-guard.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end }}

{{- /* Where the Lease lies, and what the webhooks need. */}}
{{- define "volume-guard.env" -}}
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- end }}

{{- /* What the pods of the Deployment and of the Job have in common. */}}
{{- define "volume-guard.placement" -}}
serviceAccountName: {{ .Values.serviceAccount.name }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
