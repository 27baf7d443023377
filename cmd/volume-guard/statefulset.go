package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
)

type statefulSetOptions struct {
	scaleDownGrace time.Duration
}

func (o *statefulSetOptions) flags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.scaleDownGrace, "scale-down-grace", statefulset.DefaultGrace,
		"How long a claim that the policy whenScaled: Delete of its StatefulSet deletes stays after its pod is gone, where "+
			"volume-guard deletes it. Scaling up again meanwhile keeps the data. The annotation "+
			statefulset.GraceAnnotation+" of a StatefulSet takes precedence.")
}
