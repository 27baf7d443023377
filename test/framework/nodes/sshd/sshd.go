// Package sshd plays the SSH servers of machines, for test suites that stop services of nodes by SSH.
//
// One [Server] is the bastion before all machines: its client opens a connection to it (RFC 4254, section 7.2:
// direct-tcpip) for each machine, and the same server answers there. So the machines need no port, no user and no
// program of their own.
package sshd

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// Run runs a command on the machine with this address, and returns its exit status. It may be called concurrently.
// When ctx ends, its result is lost.
type Run func(ctx context.Context, address, command string, stdout, stderr io.Writer) (status int)

// Server serves until its Close. Its methods may be called concurrently.
type Server struct {
	run      Run
	listener net.Listener
	config   *ssh.ServerConfig
	key      []byte

	ctx    context.Context //nolint:containedctx // it ends the commands of connections, which have none
	cancel context.CancelFunc
	serves sync.WaitGroup
}

// Serve starts a server on a free port of this machine.
func Serve(run Run) (*Server, error) {
	clientKey, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, err
	}
	client, err := ssh.NewPublicKey(clientKey)
	if err != nil {
		return nil, err
	}
	_, hostKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	host, err := ssh.NewSignerFromKey(hostKey)
	if err != nil {
		return nil, err
	}
	s := &Server{run: run, key: pem.EncodeToMemory(block), config: &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if !bytes.Equal(key.Marshal(), client.Marshal()) {
				return nil, errors.New("unknown key")
			}
			return &ssh.Permissions{}, nil
		}}}
	s.config.AddHostKey(host)
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.serves.Go(s.accept)
	return s, nil
}

// Address is the server's host and port, for the client's bastion.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Key is the private key of the only client that the server admits, in OpenSSH's format.
func (s *Server) Key() []byte { return s.key }

// Close ends all connections and commands, and returns once they have ended.
func (s *Server) Close() error {
	s.cancel()
	err := s.listener.Close()
	s.serves.Wait()
	return err
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // it is closed
		}
		s.serves.Go(func() { s.serve(conn, "") })
	}
}

// serve answers one connection: on the machine with this address, or without one, on the bastion.
func (s *Server) serve(near net.Conn, address string) {
	stop := context.AfterFunc(s.ctx, func() { _ = near.Close() })
	defer stop()
	defer func() { _ = near.Close() }()
	conn, channels, requests, err := ssh.NewServerConn(near, s.config)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	go ssh.DiscardRequests(requests)
	for offered := range channels {
		wanted := "session"
		if address == "" {
			wanted = "direct-tcpip"
		}
		if offered.ChannelType() != wanted {
			_ = offered.Reject(ssh.UnknownChannelType, "only "+wanted+" is served here")
			continue
		}
		s.open(offered, address)
	}
}

// open accepts a channel: a connection to a machine, or a session on it.
func (s *Server) open(offered ssh.NewChannel, address string) {
	var to struct {
		Host       string
		Port       uint32
		Origin     string
		OriginPort uint32
	}
	if address == "" {
		if err := ssh.Unmarshal(offered.ExtraData(), &to); err != nil || to.Host == "" {
			_ = offered.Reject(ssh.ConnectionFailed, "no machine is named")
			return
		}
	}
	channel, requests, err := offered.Accept()
	if err != nil {
		return
	}
	if address == "" {
		go ssh.DiscardRequests(requests)
		s.serves.Go(func() { s.serve(connOf{channel}, to.Host) })
		return
	}
	s.serves.Go(func() { s.session(channel, requests, address) })
}

// session runs one command, as each client of the suite does.
func (s *Server) session(channel ssh.Channel, requests <-chan *ssh.Request, address string) {
	defer func() { _ = channel.Close() }()
	for request := range requests {
		var exec struct{ Command string }
		known := request.Type == "exec" && ssh.Unmarshal(request.Payload, &exec) == nil
		if request.WantReply {
			_ = request.Reply(known, nil)
		}
		if !known {
			continue
		}
		go ssh.DiscardRequests(requests)
		status := s.run(s.ctx, address, exec.Command, channel, channel.Stderr())
		if s.ctx.Err() == nil {
			_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(status)}))
		}
		return
	}
}

// connOf is a channel as a connection. SSH asks it for no address or deadline that would matter.
type connOf struct{ ssh.Channel }

func (connOf) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (connOf) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (connOf) SetDeadline(time.Time) error      { return nil }
func (connOf) SetReadDeadline(time.Time) error  { return nil }
func (connOf) SetWriteDeadline(time.Time) error { return nil }
