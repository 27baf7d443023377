//go:build unix

package bench

import (
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
)

const (
	subjectCPU   = "subject_cpu_s_per_1000_"
	apiServerCPU = "apiserver_cpu_s_per_1000_"
)

// costs are the figures that a family has beside its own; goals are of the subject's.
func costs(family, load string, goals ...report.Goal) []report.Figure {
	const unit = "s"
	return []report.Figure{
		{Name: subjectCPU + family, Unit: unit, Goals: goals,
			Load: load + " Processor time of the subject, user and system (Linux), for 1,000 volumes."},
		{Name: apiServerCPU + family, Unit: unit,
			Load: load + " Processor time of the API server meanwhile, with what all its clients ask, for 1,000 volumes."},
	}
}

// used is the processor time, in seconds, that had been used at a moment.
type used struct{ subject, apiServer float64 }

// used reads it; without a program, which may not run yet, of the API server alone.
func (env *environment) used(program subject.Running) (u used, err error) {
	server, err := subject.UsageOf(env.cluster.APIServer.PID())
	if err != nil {
		return u, err
	}
	u.apiServer = server.CPU
	if program == nil {
		return u, nil
	}
	own, err := subject.UsageOf(program.PID())
	u.subject = own.CPU
	return u, err
}

// recordCosts records the resources used for the volumes since before.
func (s *session) recordCosts(column string, program subject.Running, before used, volumes int) error {
	after, err := s.env.used(program)
	if err != nil {
		return err
	}
	scale := 1000 / float64(volumes)
	if program != nil {
		s.record(subjectCPU+s.family, column, scale*(after.subject-before.subject))
	}
	s.record(apiServerCPU+s.family, column, scale*(after.apiServer-before.apiServer))
	return nil
}
