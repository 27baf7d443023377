package app

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // makes --logging-format=json known
	"k8s.io/klog/v2"
)

// maxVerbosity is the highest allowed log level. From level 8 on, client-go logs the bodies of its calls (logBody in
// k8s.io/client-go/rest), which contain Secrets and the attributes of volumes.
const maxVerbosity logsapi.VerbosityLevel = 7

type logging struct{ *logs.Options }

func (l *logging) flags(fs *pflag.FlagSet) {
	l.Options = logs.NewOptions()
	logsapi.AddFlags(l.Options, fs)
	fs.Lookup("v").Usage = fmt.Sprintf("Number for the log level verbosity. Levels above %d are lowered to %d, because "+
		"they log Secrets and the attributes of volumes.", maxVerbosity, maxVerbosity)
}

// limit bounds the levels of -v and --vmodule, and reports whether one of them was higher.
func (l *logging) limit() (limited bool) {
	limit := func(level *logsapi.VerbosityLevel) {
		limited = limited || *level > maxVerbosity
		*level = min(*level, maxVerbosity)
	}
	limit(&l.Verbosity)
	for i := range l.VModule {
		limit(&l.VModule[i].Verbosity)
	}
	return limited
}

// apply configures the log from the flags, after limiting its level.
func (l *logging) apply(ctx context.Context) error {
	limited := l.limit()
	if err := logsapi.ValidateAndApply(l.Options, nil); err != nil {
		return fmt.Errorf("logging flags: %w", err)
	}
	if limited {
		klog.FromContext(ctx).Info("Lowered the log level: above this level client-go logs Secrets", "v", maxVerbosity)
	}
	return nil
}
