{{- define "csi-reclaimer.name" -}}
{{ .Values.nameOverride | default "csi-reclaimer" }}
{{- end }}

{{- define "csi-reclaimer.labels" -}}
{{- $own := dict "app.kubernetes.io/component" "sidecar" "app.kubernetes.io/part-of" "csi-reclaimer" }}
{{- $_ := set $own "app.kubernetes.io/name" (include "csi-reclaimer.name" .) }}
{{- $_ := set $own "app.kubernetes.io/instance" .Release.Name }}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion }}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service }}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") }}
{{- toYaml (merge (dict) .Values.commonLabels $own) }}
{{- end }}
