// Package operations tests the tasks of operators: install, grant, migrate, fail over, roll back, look for leaks, use
// the plugin. Each test uses the programs, a real control plane and a real CSI driver; see test/framework/fixture.
package operations
