package sshd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// TestCommandOnMachine runs commands on machines as a client of a bastion does.
func TestCommandOnMachine(t *testing.T) {
	t.Parallel()
	server := serve(t, func(_ context.Context, address, command string, stdout, stderr io.Writer) int {
		_, _ = fmt.Fprintf(stdout, "%s runs %s", address, command)
		_, _ = io.WriteString(stderr, "complaint")
		return len(command)
	})
	bastion := dial(t, server, server.Key())
	for _, address := range []string{"192.168.1.1", "192.168.1.2"} {
		stdout, stderr, status := command(t, bastion, server, address, "four")
		if want := address + " runs four"; stdout != want || stderr != "complaint" || status != 4 {
			t.Errorf("output %q, %q, status %d, want %q, complaint, 4", stdout, stderr, status, want)
		}
	}
	if _, err := bastion.NewSession(); err == nil {
		t.Error("the bastion has sessions of its own")
	}
}

// TestOtherKeysAreRefused tries a key that another server gave.
func TestOtherKeysAreRefused(t *testing.T) {
	t.Parallel()
	none := func(context.Context, string, string, io.Writer, io.Writer) int { return 0 }
	server, other := serve(t, none), serve(t, none)
	if _, err := connect(server, other.Key()); err == nil {
		t.Error("a client with another key was admitted")
	}
}

// TestCloseEndsCommands closes a server while a command runs.
func TestCloseEndsCommands(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	server := serve(t, func(ctx context.Context, _, _ string, _, _ io.Writer) int {
		close(began)
		<-ctx.Done()
		return 0
	})
	bastion := dial(t, server, server.Key())
	session := session(t, bastion, server, "192.168.1.1")
	must.OK(t, session.Start("forever"))
	<-began
	_ = server.Close()
	var exit *ssh.ExitError
	if err := session.Wait(); err == nil || errors.As(err, &exit) {
		t.Errorf("the command ended with %v, want the loss of its connection", err)
	}
}

func serve(t *testing.T, run Run) *Server {
	t.Helper()
	server := must.Get(Serve(run))(t)
	t.Cleanup(func() { _ = server.Close() })
	return server
}

func connect(to *Server, key []byte) (*ssh.Client, error) {
	config, err := clientConfig(key)
	if err != nil {
		return nil, err
	}
	return ssh.Dial("tcp", to.Address(), config)
}

func clientConfig(key []byte) (*ssh.ClientConfig, error) {
	signer, err := ssh.ParsePrivateKey(key)
	return &ssh.ClientConfig{User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: ssh.InsecureIgnoreHostKey()}, err
}

func dial(t *testing.T, to *Server, key []byte) *ssh.Client {
	t.Helper()
	client := must.Get(connect(to, key))(t)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// session returns a session on a machine behind the bastion.
func session(t *testing.T, bastion *ssh.Client, server *Server, address string) *ssh.Session {
	t.Helper()
	config := must.Get(clientConfig(server.Key()))(t)
	near := must.Get(bastion.Dial("tcp", net.JoinHostPort(address, "22")))(t)
	conn, channels, requests, err := ssh.NewClientConn(near, address, config)
	if err != nil {
		t.Fatal(err)
	}
	client := ssh.NewClient(conn, channels, requests)
	t.Cleanup(func() { _ = client.Close() })
	session := must.Get(client.NewSession())(t)
	return session
}

func command(t *testing.T, bastion *ssh.Client, server *Server, address, line string) (string, string, int) {
	t.Helper()
	session := session(t, bastion, server, address)
	var stdout, stderr bytes.Buffer
	session.Stdout, session.Stderr = &stdout, &stderr
	err := session.Run(line)
	var exit *ssh.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err == nil {
		return stdout.String(), stderr.String(), 0
	}
	return stdout.String(), stderr.String(), exit.ExitStatus()
}
