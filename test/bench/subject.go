//go:build unix

package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/peer"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// subject is a program that is measured.
type subject struct {
	column string
	// args are its flags beside address and kubeconfig.
	args []string
}

func subjects() []subject {
	return []subject{ours(), reference(), unthrottled()}
}

// ours is csi-reclaimer at its defaults, but that it does not provision: there are no claims for it
// here. The verbosity is that of package sidecar otherwise.
func ours(args ...string) subject {
	return subject{Ours, append([]string{"-v=0", "--provision=false"}, args...)}
}

func reference() subject {
	return subject{Reference, []string{"--kube-api-qps=5", "--kube-api-burst=10", "--retry-interval-start=1s"}}
}

func unthrottled() subject {
	return subject{Unthrottled, []string{"--kube-api-qps=-1", "--worker-threads=100", "--retry-interval-start=1s"}}
}

// account is the name of the service account.
func (s subject) account() string { return strings.ReplaceAll(s.column, "_", "-") }

// user is the account's name in the audit log.
func (s subject) user(namespace string) string {
	return "system:serviceaccount:" + namespace + ":" + s.account()
}

// running is a subject at work.
type running interface {
	PID() int
	Stop() error
	LogTail(lines int) string
}

// impatient is a subject that is not asked to end in peace, but killed, once ctx has ended: ours would let calls in
// hand end.
type impatient struct {
	*program.Program
	ctx context.Context
}

func (i impatient) Stop() error {
	if i.ctx.Err() != nil {
		i.Kill()
	}
	return i.Program.Stop()
}

// start starts the subject and returns when it has been executed; whether it is at work shows in what it does. When ctx
// has ended, Stop kills it.
func (env *environment) start(ctx context.Context, s subject) (running, error) {
	if s.column == Ours {
		car, err := program.StartSidecar(ctx, program.SidecarOptions{
			// The Leases of the in-flight log are there, too.
			Binary: env.programs.sidecar, Address: env.driver.Socket(), Kubeconfig: env.kubeconf[s.column],
			Args: append([]string{"--leader-election-namespace=" + env.namespace}, s.args...),
		})
		return impatient{car, ctx}, err
	}
	return peer.Start(ctx, peer.Options{
		Binary: env.programs.peer, Address: env.driver.Socket(), Kubeconfig: env.kubeconf[s.column], AddFinalizer: true,
		Args: s.args,
	})
}

// usage is what a process has used up to now.
type usage struct {
	// peakMiB and residentMiB are the largest and the present resident set.
	peakMiB, residentMiB float64
	// cpu is processor time in seconds.
	cpu float64
}

// ticksPerSecond is USER_HZ, which Linux fixes at 100 for all programs.
const ticksPerSecond = 100

// usageOf reads it from /proc, which only Linux has.
func usageOf(pid int) (usage, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return usage{}, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return usage{}, fmt.Errorf("read processor time of process %d: %w", pid, err)
	}
	return parseUsage(string(status), string(stat))
}

// parseUsage reads /proc/PID/status and /proc/PID/stat (proc_pid_status(5), proc_pid_stat(5)).
func parseUsage(status, stat string) (u usage, err error) {
	for _, field := range []struct {
		name string
		into *float64
	}{{"VmHWM:", &u.peakMiB}, {"VmRSS:", &u.residentMiB}} {
		_, after, found := strings.Cut(status, field.name)
		var kB float64
		if _, err := fmt.Sscan(after, &kB); err != nil || !found {
			return usage{}, fmt.Errorf("read process status: no %s in it", field.name)
		}
		*field.into = kB / 1024
	}
	// The program's name, in parentheses, may hold anything; utime and stime are the 12th and 13th field after it.
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) < 13 {
		return usage{}, fmt.Errorf("read process stat: %d fields", len(fields))
	}
	for _, text := range fields[11:13] {
		ticks, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return usage{}, fmt.Errorf("read process stat: %w", err)
		}
		u.cpu += ticks / ticksPerSecond
	}
	return u, nil
}
