// llama.cpp in the build of node-llama-cpp, as bench.generate.child asks and is answered: node llama.mjs FILE THREADS CAPACITY
// Run it in a folder with `npm install node-llama-cpp @node-llama-cpp/linux-x64`.
import {createInterface} from "node:readline";
import {createRequire} from "node:module";
import {readFileSync} from "node:fs";
import {pathToFileURL} from "node:url";

const require = createRequire(process.cwd() + "/");
const {getLlama} = await import(pathToFileURL(require.resolve("node-llama-cpp")));
const [file, threads, capacity] = [process.argv[2], +process.argv[3], +process.argv[4]];
const llama = await getLlama({gpu: false, build: "never", logLevel: "error", maxThreads: threads});
const model = await llama.loadModel({modelPath: file, gpuLayers: 0});
const context = await model.createContext({contextSize: capacity, threads, batchSize: 512});
const sequence = context.getSequence();
let prompt = 0, first = 0;

const memory = () => +/VmRSS:\s+(\d+)/.exec(readFileSync("/proc/self/status", "utf8"))[1] * 1024;
const rewind = async (length) => {
    if (sequence.nextTokenIndex > length)
        await sequence.eraseContextTokenRanges([{start: length, end: sequence.nextTokenIndex}]);
};
const read = async (ids) => {
    const wall = performance.now(), cpu = process.cpuUsage();
    const tokens = sequence.evaluate(ids, {temperature: 0});
    const {value} = await tokens.next();
    await tokens.return?.();
    const used = process.cpuUsage(cpu);
    return {token: value, wall: (performance.now() - wall) / 1e3, cpu: (used.user + used.system) / 1e6};
};

console.log(JSON.stringify({memory: memory()}));
for await (const line of createInterface({input: process.stdin})) {
    const request = JSON.parse(line), answers = [];
    if (request.read) {
        await rewind(0);
        prompt = request.read.length;
        answers.push(await read(request.read));
        first = answers[0].token;
    } else {
        await rewind(prompt);
        let token = first;
        for (let at = 0; at < request.go; at++) {
            answers.push(await read([token]));
            token = answers[at].token;
        }
    }
    console.log(JSON.stringify({
        tokens: answers.map((one) => one.token),
        wall: answers.map((one) => one.wall),
        cpu: answers.map((one) => one.cpu),
        waited: 0,
        memory: memory(),
    }));
}
process.exit(0);
