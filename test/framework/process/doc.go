// Package process starts the programs under test as separate processes, and leaves none of them behind.
//
// Only a separate process can be killed, so a test of a controller, driver or API server that is killed, hangs or
// restarts is only honest with processes. But a test that panics, is interrupted or is itself killed could leave
// processes that hold ports, sockets and leases, and spoil the next run. So every process started here ends with the
// program that started it, however that program ends:
//
//   - on Linux the kernel sends SIGKILL to the process when its parent dies
//     (PR_SET_PDEATHSIG), so even a SIGKILL of the parent leaves nothing;
//   - on other Unix systems a shell per process waits for the parent's
//     end of a pipe to close and then kills the process group.
//
// Each process leads its own process group. A Ctrl-C at the terminal reaches only the parent, which decides the order
// of the stops, and the process's own children are killed once it has ended. Such a child may outlive a parent that
// dies of SIGKILL: this package is not for programs that fork.
//
// [Build] compiles the project's own programs, so that tests run the users' binaries. The package does not know the
// purpose of a process, or when it is ready.
package process
