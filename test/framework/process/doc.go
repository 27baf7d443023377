// Package process starts the programs under test as processes of their own and
// leaves none of them behind.
//
// A test of what happens when a controller, a driver or an API server is killed,
// hangs or restarts is only honest when each runs as a process, because only then can it be
// killed. The price is that a test which panics, is interrupted or is itself
// killed could leave processes running that hold ports, sockets and leases and spoil the
// next run. Every process started here therefore ends with the program
// that started it, however that program ends:
//
//   - on Linux the kernel sends SIGKILL to the process when its parent dies
//     (PR_SET_PDEATHSIG), so even a SIGKILL of the parent leaves nothing;
//   - on other Unix systems a shell per process waits for the parent's
//     end of a pipe to close and then kills the process group.
//
// Each process leads a process group of its own: a Ctrl-C at the terminal reaches the
// parent alone, which decides the order in which things stop, and whatever the
// process itself forked is killed once it has ended. A descendant that the process forked may
// outlive a parent that dies of SIGKILL; programs that fork are not what this package is for.
//
// [Build] compiles the project's own programs, so that tests run the binaries
// that users run. What the processes do and when they are ready is left to others.
package process
