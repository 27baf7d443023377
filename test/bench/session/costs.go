//go:build unix

package session

import (
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
)

const (
	SubjectCPU   = "subject_cpu_s_per_1000_"
	ApiServerCPU = "apiserver_cpu_s_per_1000_"
)

// Costs are the figures that a family has beside its own; goals are of the subject's.
func Costs(family, load string, goals ...report.Goal) []report.Figure {
	const unit = "s"
	return []report.Figure{
		{Name: SubjectCPU + family, Unit: unit, Goals: goals,
			Load: load + " Processor time of the subject, user and system (Linux), for 1,000 volumes."},
		{Name: ApiServerCPU + family, Unit: unit,
			Load: load + " Processor time of the API server meanwhile, with what all its clients ask, for 1,000 volumes."},
	}
}

// used is the processor time, in seconds, that had been used at a moment.
type used struct{ subject, ApiServer float64 }

// Used reads it; without a program, which may not run yet, of the API server alone.
func (env *Environment) Used(program subject.Running) (u used, err error) {
	server, err := subject.UsageOf(env.Cluster.APIServer.PID())
	if err != nil {
		return u, err
	}
	u.ApiServer = server.CPU
	if program == nil {
		return u, nil
	}
	own, err := subject.UsageOf(program.PID())
	u.subject = own.CPU
	return u, err
}

// ApiServerMs calls do for n objects, and returns the processor time of the API server meanwhile, in ms for one.
func (env *Environment) ApiServerMs(n int, do func() error) (float64, error) {
	before, err := env.Used(nil)
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := env.Used(nil)
	return 1000 * (after.ApiServer - before.ApiServer) / float64(n), err
}

// RecordCosts records the resources used for the volumes since before.
func (s *Session) RecordCosts(column string, program subject.Running, before used, volumes int) error {
	after, err := s.Env.Used(program)
	if err != nil {
		return err
	}
	scale := 1000 / float64(volumes)
	if program != nil {
		s.Record(SubjectCPU+s.family, column, scale*(after.subject-before.subject))
	}
	s.Record(ApiServerCPU+s.family, column, scale*(after.ApiServer-before.ApiServer))
	return nil
}
