{{- define "weighlock.labels" -}}
app.kubernetes.io/name: weighlock
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: weighlock
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- define "weighlock.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "weighlock.port" -}}
{{ last (splitList ":" .) }}
{{- end }}
{{- define "weighlock.xds" -}}
{{ .Values.advertise.xds | default (printf "%s-xds.%s.svc:18000" .Release.Name .Release.Namespace) }}
{{- end }}
{{- define "weighlock.recorderALS" -}}
{{ .Values.advertise.recorderALS | default (printf "%s-recorder.%s.svc:18001" .Release.Name .Release.Namespace) }}
{{- end }}
{{- define "weighlock.recorderURL" -}}
{{- if .Values.tls.enabled -}}
{{ .Values.advertise.recorderURL | default (printf "https://%s-recorder.%s.svc:8091" .Release.Name .Release.Namespace) }}
{{- else -}}
{{ .Values.advertise.recorderURL | default (printf "http://%s-recorder.%s.svc:8090" .Release.Name .Release.Namespace) }}
{{- end -}}
{{- end }}
{{- define "weighlock.evidenceURL" -}}
{{ .Values.advertise.evidenceURL | default (printf "http://%s-operator.%s.svc:8080" .Release.Name .Release.Namespace) }}
{{- end }}
{{- define "weighlock.dashboardURL" -}}
{{ .Values.advertise.dashboardURL | default (printf "http://%s-dashboard.%s.svc:8088" .Release.Name .Release.Namespace) }}
{{- end }}
{{- define "weighlock.dataVolume" -}}
{{- if .root.Values.persistence.enabled }}
persistentVolumeClaim: {claimName: {{ .root.Release.Name }}-{{ .part }}}
{{- else }}
emptyDir: {}
{{- end }}
{{- end }}
{{- define "weighlock.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "weighlock.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
{{- define "weighlock.authoritySecret" -}}
{{- if .Values.tls.certManager.enabled -}}
{{ .Values.tls.authoritySecret | default (printf "%s-authority" .Release.Name) }}
{{- else -}}
{{ .Values.tls.authoritySecret }}
{{- end -}}
{{- end }}
