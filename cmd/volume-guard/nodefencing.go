package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
)

type nodeFencingOptions struct {
	keepReturned time.Duration
}

func (o *nodeFencingOptions) flags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.keepReturned, "keep-returned-fences", fencing.DefaultKeepReturned,
		"How long a NodeFence is kept as a record after its node has returned.")
}
