{{- define "csi-reclaimer.name" -}}
{{ .Values.nameOverride | default "csi-reclaimer" }}
{{- end }}

{{- define "csi-reclaimer.fullname" -}}
{{ .Values.fullnameOverride | default (printf "%s-%s" .Release.Name (include "csi-reclaimer.name" .)) }}
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

{{- /* The parts of container.image that image does not replace. No image is published as latest: it stands for the chart's version,
which "make release" writes in its place. */}}
{{- define "csi-reclaimer.image" -}}
{{- $named := .Values.container.image }}
{{- $tag := regexFind "(@sha256)?:[^:/]+$" $named }}
{{- with .Values.image -}}
{{ with .registry }}{{ . }}/{{ end }}{{ .repository | default (trimSuffix $tag $named) }}
{{- if .digest }}@{{ .digest }}
{{- else if .tag }}:{{ .tag }}
{{- else if or .repository (has $tag (list "" ":latest")) }}:{{ required "container: pass (index .Subcharts \"csi-reclaimer\")" ($.Chart | default dict).AppVersion }}
{{- else }}{{ $tag }}
{{- end }}
{{- end }}
{{- end }}
