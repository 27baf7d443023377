{{- /* The container, for NOTES.txt and for drivers' own charts: this chart as a dependency, and in the pod's containers
{{ include "csi-reclaimer.container" (index .Subcharts "csi-reclaimer") | nindent 6 }}. */}}
{{- define "csi-reclaimer.container" -}}
{{- with .Values.container -}}
- name: csi-reclaimer
  image: {{ include "csi-reclaimer.image" $ }}
  {{- with $.Values.image.pullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  args:
  - --csi-address={{ .socket }}
  {{- if ne $.Values.role "owner" }}
  - --role={{ $.Values.role }}
  {{- end }}
  - --leader-election
  - --http-endpoint=:{{ .httpPort }}
  {{- if .brakeDeletions }}
  - --brake-deletions={{ .brakeDeletions }}
  {{- end }}
  {{- if $.Values.capacity }}
  - --enable-capacity
  - --capacity-ownerref-level={{ $.Values.capacityOwnerrefLevel }}
  {{- end }}
  {{- with $.Values.leakCheckInterval }}
  - --leak-check-interval={{ . }}
  {{- end }}
  {{- range .extraArgs }}
  - {{ . | quote }}
  {{- end }}
  env:
  - name: POD_NAMESPACE
    valueFrom:
      fieldRef:
        fieldPath: metadata.namespace
  {{- if $.Values.capacity }}
  - name: NAMESPACE
    valueFrom:
      fieldRef:
        fieldPath: metadata.namespace
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  {{- end }}
  {{- with .extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  ports:
  - name: http
    containerPort: {{ .httpPort }}
  livenessProbe:
    httpGet:
      path: /healthz/leader-election
      port: http
    periodSeconds: 20
    timeoutSeconds: 5
    failureThreshold: 3
  readinessProbe:
    httpGet:
      path: /readyz
      port: http
    periodSeconds: 10
  securityContext:
    {{- toYaml .securityContext | nindent 4 }}
  resources:
    {{- toYaml .resources | nindent 4 }}
  volumeMounts:
  - name: {{ .socketVolume }}
    mountPath: {{ dir .socket }}
{{- end }}
{{- end }}
