//go:build linux

package nodes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// commandTimeout bounds commands on a node for callers without a context.
const commandTimeout = 30 * time.Second

// Partition cuts the node off from the control plane: its kubelet is stopped (SIGSTOP), and its containers run on.
func (n *Node) Partition() error {
	return n.withKubelet("partition", func(kubelet *process.Process) error {
		n.partitioned = true
		return kubelet.Pause()
	})
}

// Heal ends a Partition.
func (n *Node) Heal() error {
	return n.withKubelet("heal", func(kubelet *process.Process) error {
		n.partitioned = false
		return kubelet.Resume()
	})
}

// Disconnect cuts the network between kubelet and API server. Kubelet and containers run on. The pool has
// Options.Links.
func (n *Node) Disconnect() error { return n.setCut("disconnect", true) }

// Connect ends a Disconnect.
func (n *Node) Connect() error { return n.setCut("connect", false) }

func (n *Node) setCut(what string, cut bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.link == nil {
		return fmt.Errorf("%s node %q: %w", what, n.name, errors.New("the pool has no links"))
	}
	n.partitioned = cut
	n.link.setCut(cut)
	return nil
}

// Freeze stops all processes of the node (SIGSTOP), as a virtual machine that is paused: kubelet, containerd and
// containers. Only PowerOff and Thaw work on such a node.
func (n *Node) Freeze(ctx context.Context) error { return n.signalAll(ctx, "freeze", "STOP") }

// Thaw ends a Freeze.
func (n *Node) Thaw(ctx context.Context) error { return n.signalAll(ctx, "thaw", "CONT") }

// signalAll sends a signal to all processes in the node's process namespace but the first one.
func (n *Node) signalAll(ctx context.Context, what, signal string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	err := errOff
	if n.machine != nil {
		ctx, cancel := context.WithTimeout(ctx, commandTimeout)
		defer cancel()
		err = process.Run(ctx, n.inside("sh", "-c", "kill -s "+signal+" -- -1"))
		if err == nil && signal == "STOP" {
			err = waitStopped(ctx, fmt.Sprintf("/proc/%d/root/proc", n.init))
		}
	}
	if err != nil {
		return fmt.Errorf("%s node %q: %w", what, n.name, err)
	}
	n.partitioned = signal == "STOP"
	for _, p := range []*process.Process{n.kubelet, n.containerd} {
		if p != nil && !n.partitioned {
			_ = p.Resume() // nsenter stops with the program that it has started
		}
	}
	return nil
}

// waitStopped waits until each thread of a process namespace, whose /proc is in dir, has stopped, but for those of the
// first process. A signal only asks: a thread ends its system call, such as a write, before it stops.
func waitStopped(ctx context.Context, dir string) error {
	for {
		threads, err := filepath.Glob(filepath.Join(dir, "[0-9]*", "task", "[0-9]*"))
		if err != nil {
			return err
		}
		running := slices.IndexFunc(threads, func(thread string) bool {
			return !strings.HasPrefix(thread, filepath.Join(dir, "1", "task")+"/") && !stopped(dir, thread)
		})
		if running < 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s has not stopped: %w", threads[running], ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// stopped reports whether a thread has stopped or ended, or waits for a child that has: after vfork(2), until that
// executes a program.
func stopped(dir, thread string) bool {
	switch state(filepath.Join(thread, "stat")) {
	case "T", "t", "Z", "X", "":
		return true
	case "D":
		children, _ := os.ReadFile(filepath.Join(thread, "children")) // nothing once it has ended
		for _, child := range strings.Fields(string(children)) {
			if state(filepath.Join(dir, child, "stat")) == "T" {
				return true
			}
		}
	}
	return false
}

// state returns the letter of a process or thread in its stat (proc(5)), nothing once it is reaped.
func state(file string) string {
	stat, _ := os.ReadFile(file)
	// The state stands behind the name, which is in parentheses and may have some itself.
	_, rest, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	letter, _, _ := bytes.Cut(rest, []byte(" "))
	return string(letter)
}

// Crash kills the kubelet (SIGKILL). Its containers run on.
func (n *Node) Crash() error {
	return n.withKubelet("crash the kubelet of", func(kubelet *process.Process) error {
		n.partitioned = false
		kubelet.Kill()
		return nil
	})
}

// talks reports whether the kubelet runs and is not partitioned.
func (n *Node) talks() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.kubelet != nil && n.kubelet.Running() && !n.partitioned
}

func (n *Node) withKubelet(what string, do func(*process.Process) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	err := errOff
	if n.machine != nil && n.kubelet != nil {
		err = do(n.kubelet)
	}
	if err != nil {
		return fmt.Errorf("%s node %q: %w", what, n.name, err)
	}
	return nil
}

// Restart kills the kubelet, if it still runs, starts it again and returns once it has said that the node is Ready.
func (n *Node) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := n.Crash(); err != nil {
		return err
	}
	if err := n.startKubelet(ctx); err != nil {
		return fmt.Errorf("restart the kubelet of node %q: %w", n.name, err)
	}
	return nil
}

// Reboot is PowerOff and Boot.
func (n *Node) Reboot(ctx context.Context) error {
	if err := n.PowerOff(); err != nil { //nolint:contextcheck // half a loss of power is none
		return err
	}
	return n.Boot(ctx)
}

// PowerOff ends all processes of the node at once, as a loss of power does. The mounts and the contents of /run go with
// them. Its disk stays: the images, and the kubelet's files. It does nothing for a node that is off.
func (n *Node) PowerOff() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.machine == nil {
		return nil
	}
	n.machine.Close() // the kernel ends all that is in the process namespace
	for _, p := range []*process.Process{n.kubelet, n.containerd} {
		if p != nil {
			p.Close()
		}
	}
	n.machine, n.kubelet, n.containerd, n.partitioned = nil, nil, nil, false
	err := errors.Join(waitEnded(n.init), n.unmountAll())
	removeCgroups(n.stateDir())
	err = errors.Join(err, os.RemoveAll(n.stateDir()))
	if err != nil {
		return fmt.Errorf("power node %q off: %w", n.name, err)
	}
	return nil
}

// waitEnded waits until the first process of a process namespace, which was killed, has ended: the kernel ends all
// others before that (pid_namespaces(7)). Its new parent may take seconds to reap it.
func waitEnded(pid int) error {
	deadline := time.Now().Add(commandTimeout)
	for pid != 0 {
		if slices.Contains([]string{"", "Z", "X"}, state(fmt.Sprintf("/proc/%d/stat", pid))) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d is still there %s after its end", pid, commandTimeout)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// unmountAll removes the copies that the pool's namespace has of the node's mounts.
func (n *Node) unmountAll() error {
	mounts, err := n.mountPoints()
	if err != nil || len(mounts) == 0 {
		return err
	}
	slices.Reverse(mounts) // the latest first
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	return process.Run(ctx, process.Command{Name: "umount", Path: "nsenter",
		Args: append([]string{"--mount=" + n.pool.spaceFile("mnt"), "umount", "--lazy"}, mounts...)})
}

// BootID is the boot ID that the node has had since it was last started, as in status.nodeInfo.bootID.
func (n *Node) BootID() (string, error) {
	id, err := os.ReadFile(n.file("boot_id"))
	if err != nil {
		return "", fmt.Errorf("boot ID of node %q: %w", n.name, err)
	}
	return string(bytes.TrimSpace(id)), nil
}
