package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// KafkaUser and KafkaPassword are known to the SASL listener by PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.
const (
	KafkaUser     = "alice"
	KafkaPassword = "alice-secret"
)

// KafkaOptions shape a broker; the zero value is a small one that starts fast.
type KafkaOptions struct {
	Heap       string            // -Xms and -Xmx; default 512m
	JVM        []string          // default: the serial collector and the first compiler only, which halves the start; for throughput give -XX:+UseG1GC
	Properties map[string]string // more of server.properties; they win over ours
	Faults     bool              // adds a listener behind a TCPFaults: FaultyBrokers, Faults
}

// KafkaServer is one Apache Kafka, broker and KRaft controller in one process.
type KafkaServer struct {
	external []string // brokers of a server that is not ours; then all else is nil
	dir      string
	ports    *ports
	certs    certificates
	faults   *TCPFaults
	options  KafkaOptions
	lib      string // folder of the jars
	process  *process
}

// The listeners' places in ports.
const (
	plainPort = iota
	controllerPort
	saslPort
	tlsPort
	faultsPort
	kafkaPorts
)

// Kafka starts a broker, or returns the one that TWGD_E2E_BROKERS names. Close it.
func Kafka(ctx context.Context, options KafkaOptions) (*KafkaServer, error) {
	if brokers := os.Getenv(EnvBrokers); brokers != "" {
		return &KafkaServer{external: strings.Split(brokers, ",")}, nil
	}
	lib, err := installKafka(ctx)
	if err != nil {
		return nil, err
	}
	k := &KafkaServer{options: options, lib: lib}
	if err := k.prepare(ctx); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	if err := k.Start(ctx); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

func (k *KafkaServer) prepare(ctx context.Context) (err error) {
	if k.dir, err = os.MkdirTemp("", "twgd-kafka-"); err != nil {
		return fmt.Errorf("make the broker's folder: %w", err)
	}
	if k.ports, err = reservePorts(kafkaPorts); err != nil {
		return err
	}
	if k.certs, err = makeCertificates(k.dir); err != nil {
		return err
	}
	if k.options.Faults {
		if k.faults, err = NewTCPFaults(k.address(faultsPort)); err != nil {
			return err
		}
	}
	if err := k.writeConfig(); err != nil {
		return err
	}
	k.process = &process{name: "Kafka", command: k.command, death: syscall.SIGKILL,
		log: filepath.Join(k.dir, "kafka.log"), ready: k.answers, limit: 2 * time.Minute}
	return k.format(ctx)
}

// format writes the broker's identity and its SCRAM users into the empty data folder.
func (k *KafkaServer) format(ctx context.Context) error {
	user := "[name=" + KafkaUser + ",password=" + KafkaPassword + "]"
	args := append(k.javaArgs("256m", []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}), "kafka.tools.StorageTool", "format",
		"-t", kafkaClusterID(), "-c", k.propertiesFile(),
		"--add-scram", "SCRAM-SHA-256="+user, "--add-scram", "SCRAM-SHA-512="+user)
	if err := runTool(ctx, nil, "java", args...); err != nil {
		return fmt.Errorf("format the broker's folder: %w", err)
	}
	return nil
}

func (k *KafkaServer) command() *exec.Cmd {
	heap, jvm := k.options.Heap, k.options.JVM
	if heap == "" {
		heap = "512m"
	}
	if jvm == nil {
		jvm = []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}
	}
	return exec.Command("java", append(k.javaArgs(heap, jvm), "kafka.Kafka", k.propertiesFile())...)
}

// Start starts the broker again after Stop or Kill, on the same ports and data, and returns when it answers.
func (k *KafkaServer) Start(ctx context.Context) error {
	if k.external != nil {
		return ErrExternal
	}
	return k.process.start(ctx)
}

// Stop ends the broker by SIGTERM and waits for its end.
func (k *KafkaServer) Stop() error { return k.end(syscall.SIGTERM) }

// Kill ends the broker by SIGKILL and waits for its end.
func (k *KafkaServer) Kill() error { return k.end(syscall.SIGKILL) }

// Pause stops the broker's clock, so to say: connections stay open and nothing answers, until Continue.
func (k *KafkaServer) Pause() error { return k.send(syscall.SIGSTOP) }

// Continue ends a Pause.
func (k *KafkaServer) Continue() error { return k.send(syscall.SIGCONT) }

func (k *KafkaServer) end(sig syscall.Signal) error {
	if k.external != nil {
		return ErrExternal
	}
	return k.process.stop(sig)
}

func (k *KafkaServer) send(sig syscall.Signal) error {
	if k.external != nil {
		return ErrExternal
	}
	return k.process.signal(sig)
}

// Close ends the broker and removes all it kept. An external one is left alone.
func (k *KafkaServer) Close() error {
	if k.external != nil {
		return nil
	}
	var errs []error
	if k.process != nil {
		errs = append(errs, k.process.stop(syscall.SIGKILL))
	}
	if k.faults != nil {
		errs = append(errs, k.faults.Close())
	}
	if k.ports != nil {
		k.ports.release()
	}
	return errors.Join(append(errs, os.RemoveAll(k.dir))...)
}

// PID is the broker's process, 0 while it is stopped or external.
func (k *KafkaServer) PID() int {
	if k.external != nil {
		return 0
	}
	return k.process.pid()
}

// Log is the path of what the broker printed; empty for an external one.
func (k *KafkaServer) Log() string {
	if k.external != nil {
		return ""
	}
	return k.process.log
}

// Brokers are the addresses of the PLAINTEXT listener.
func (k *KafkaServer) Brokers() []string {
	if k.external != nil {
		return k.external
	}
	return []string{k.address(plainPort)}
}

// SASLBrokers are the addresses of the SASL_PLAINTEXT listener; none for an external broker.
func (k *KafkaServer) SASLBrokers() []string { return k.listener(saslPort) }

// TLSBrokers are the addresses of the SSL listener; none for an external broker. A client certificate is asked for and not required;
// Properties{"ssl.client.auth": "required"} changes that.
func (k *KafkaServer) TLSBrokers() []string { return k.listener(tlsPort) }

// FaultyBrokers are the addresses of the PLAINTEXT listener that Faults stands before; none without KafkaOptions.Faults. Clients that
// start there are told that address only, so all they do goes through it.
func (k *KafkaServer) FaultyBrokers() []string {
	if k.faults == nil {
		return nil
	}
	return []string{k.faults.Addr()}
}

// Faults is the proxy before FaultyBrokers; nil without KafkaOptions.Faults.
func (k *KafkaServer) Faults() *TCPFaults { return k.faults }

// CAFile is the PEM certificate that a client of TLSBrokers trusts.
func (k *KafkaServer) CAFile() string { return k.certs.CA }

// ClientCertFile and ClientKeyFile are a client's PEM pair that the broker's SSL listener accepts.
func (k *KafkaServer) ClientCertFile() string { return k.certs.ClientCert }

// ClientKeyFile is the key of ClientCertFile.
func (k *KafkaServer) ClientKeyFile() string { return k.certs.ClientKey }

func (k *KafkaServer) listener(port int) []string {
	if k.external != nil {
		return nil
	}
	return []string{k.address(port)}
}

func (k *KafkaServer) address(port int) string { return loopback(k.ports.numbers[port]) }

// answers asks for the broker's API versions over a connection of its own. The port is dialled first, because it is opened last in a start
// and a client that finds it closed would wait in its own backoff.
func (k *KafkaServer) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", k.address(plainPort))
	if err != nil {
		return err
	}
	conn.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...))
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Ping(ctx)
}
