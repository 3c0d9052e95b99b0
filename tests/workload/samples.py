"""A tiny hand-made log of every format, for parser tests and as seeds for fuzzing."""

from __future__ import annotations

import json

PHILLY = json.dumps(
    [
        {
            "status": "Pass", "vc": "vc1", "jobid": "app_1", "user": "u1", "submitted_time": "2017-10-07 01:00:00",
            "attempts": [
                {"start_time": "2017-10-07 01:01:00", "end_time": "2017-10-07 01:02:00",
                 "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]},
                {"start_time": "2017-10-07 02:00:00", "end_time": "2017-10-07 03:00:00",
                 "detail": [{"ip": "m2", "gpus": ["gpu0"]}, {"ip": "m3", "gpus": ["gpu0", "gpu1"]}]},
            ],
        },
        {"status": "Killed", "vc": "vc1", "jobid": "app_2", "user": None, "submitted_time": "2017-10-07 00:59:00",
         "attempts": []},
        {"status": "Failed", "vc": "vc2", "jobid": "app_3", "user": "", "submitted_time": "2017-10-07 00:58:00",
         "attempts": [{"start_time": "2017-10-07 01:00:00", "end_time": "None",
                       "detail": [{"ip": "m1", "gpus": ["gpu7"]}]},
                      {"start_time": "2017-10-07 01:05:00", "end_time": "2017-10-07 01:05:30",
                       "detail": [{"ip": "m1", "gpus": ["gpu7"]}]}]},
        {"status": "Failed", "vc": "vc2", "jobid": "app_4", "user": "u2", "submitted_time": "2017-10-07 01:58:00",
         "attempts": [{"start_time": "2017-10-07 02:00:00", "end_time": None,
                       "detail": [{"ip": "m1", "gpus": ["g"]}]}]},
    ]
)  # fmt: skip
HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
11,ua,vcA,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:05,2020-06-09 18:42:05,60,4
12,ub,vcA,4,,1,FAILED,2020-06-09 18:41:31,,,249,
13,uc,vcB,2,1,1,CANCELLED,2020-06-09 18:41:41,2020-06-09 18:42:01,2020-06-09 18:52:01,,20
14,ud,vcB,0,1,1,COMPLETED,2020-06-09 18:41:42,2020-06-09 18:42:01,2020-06-09 18:52:01,600,19
15,ud,vcB,8,1,1,RUNNING,2020-06-09 18:41:43,2020-06-09 18:42:01,,,18
16,ud,vcB,8,1,1,FAILED,2020-06-09 18:41:44,2020-06-09 18:42:01,2020-06-09 18:42:00,-1,17
"""
HELIOS_SLICE = """# a slice
# of Helios
job_id,user,tenant,class,submit_time,num_chips,chip_type,num_nodes,duration_s,walltime_limit_s,final_status
7,ua,vcA,finetune,5835000000,16,,2,24.5,24.5,CANCELED
8,ub,vcB,finetune,5836000000,8,,1,100.0,100.0,COMPLETED
"""
MIRROR = "job_id,arrival_s,service_sec,gpu_count\n3#0,0.0,172800.0,32\n4#1,5.5,10.0,8\n"
PAI = """aaa,tensorflow,2.0,Terminated,100.0,400.0,600.0,29.29,25.0,T4
aaa,ps,1.0,Terminated,100.0,400.0,600.0,29.29,,
bbb,PyTorchWorker,1.0,Failed,90.0,50.0,600.0,29.29,200.0,P100
ccc,worker,4.0,Running,300.0,,600.0,29.29,100.0,MISC
ddd,worker,3.0,Terminated,200.0,260.0,600.0,29.29,250.0,
eee,worker,3.0,Waiting,,,600.0,29.29,100.0,
"""
OPENB = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p0,12000,16384,1,460,,LS,Running,10,1000,20
p1,12000,16384,2,1000,G2|V100M16,BE,Succeeded,0,500,100
p2,12000,16384,0,0,,BE,Succeeded,0,500,100
p3,12000,16384,8,1000,,BE,Pending,5,500,
"""
ACME_SEREN = """job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
1,ua,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,2023-03-01 00:20:51+08:00,117,32,936.0
2,ub,1,0,128,Other,COMPLETED,2023-03-01 00:23:58+08:00,2023-03-01 00:24:11+08:00,2023-03-01 01:09:04+08:00,2693,13,0
3,ub,1,8,128,Other,CANCELLED,2023-03-01 00:23:59+08:00,,,,,
"""
ACME_KALOS = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,"
    "fail_time,stop_time,duration,queue,gpu_time\n"
    "dlc1,ua,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,"
    "2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,10.0,1152.0\n"
    "dlc2,,,32,,,,,,2023-05-17 11:00:59+00:00,,,,,19,13.0,\n"
)
GAVEL = (
    "ResNet-18 (batch size 64)\tpython3 main.py\t--num_steps\t1\t1000\t0.000000\t2\n"
    "A3C\tpython3 main.py --env Pong\t--max-steps\t0\t500\t60.500000\t1\n"
    "CycleGAN\tpython3 cyclegan.py\t--n_steps\t1\t300\t70.000000\t4\n"
)
GAVEL_LATER = (
    "ResNet-18 (batch size 64)\tpython3 main.py\t--num_steps\t1\t1000\t2\t1.0\t-1.0\t0.000000\n"
    "A3C\tpython3 main.py --env Pong\t--max-steps\t0\t500\t1\t1.0\t-1.0\t60.500000\n"
)
SHOCKWAVE = (
    "ResNet-18 (batch size 64)\tpython3 main.py\tcifar10/\t--num_steps\t1\t1000\t2\tstatic\t1.0\t-1.0\t345.5\t0.0\n"
    "LM (batch size 10)\tpython3 main.py\tlm/\t--steps\t1\t2000\t1\tgns\t1.0\t-1.0\t99\t12.5\n"
)
THROUGHPUTS = """gpu_type,job_type,scale_factor,steps_per_second
k80,A3C,1,1.0
v100,ResNet-18 (batch size 64),2,50.0
v100,A3C,1,5.0
v100,CycleGAN,1,3.0
"""
TIRESIAS = """job_id,num_gpu,submit_time,iterations,model_name,duration,interval
1,8,0,100,vgg16,164,0
2,2,30.5,100,resnet50,147,30
"""
MURI = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0,"
    "resource_time_1,resource_time_2,priority\n"
    "0,1,0,5853661,dqn,128,2868000,46122000,490,446,8,0,1\n"
    "1,8,201694000,8787693,dqn,128,4472936,201694000,509,435,8,0.5,0\n"
)
POLLUX = "name,time,application,num_replicas,batch_size\ncifar10-0,107,cifar10,6,2048\nncf-1,110,ncf,1,256\n"
SWF = """; Computer: test
; UnixStartTime: 1000000
; MaxProcs: 240
    1        0 10  31405   30  31405    -1   30  37980    -1  1   1   1  -1 -1  1 -1 -1
    2        8 10  552.5   -1  31039    -1   4  -1    -1  0   2   1  -1 -1  1 -1 -1

    3       12 10  -1   30  30978    -1   30  37980    -1  5   1   1  -1 -1  1 -1 -1
"""
TIMESTAMP = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 06:13:03,2951.0,2,5902.0,6214e9
"""
GOLDEN = "job_id,submit_time,num_gpus,duration\n0,0,1,67\n1,600,1,68\n2,600,8,7205\n"
SACCT = """\
JobID|JobIDRaw|User|Account|Partition|JobName|State|Submit|Eligible|Start|End|Elapsed|Timelimit|NNodes|ExitCode|ReqTRES|AllocTRES
4101|4101|ann|vision|gpu|train "v2|COMPLETED|2024-03-01T08:00:00|2024-03-01T08:00:00|2024-03-01T08:05:00|2024-03-02T10:08:04|1-02:03:04|2-00:00:00|2|0:0|billing=16,cpu=16,gres/gpu=16,mem=1T,node=2|billing=16,cpu=16,gres/gpu:a100=16,gres/gpu=16,mem=1T,node=2
4101.batch|4101.batch||vision||batch|COMPLETED|2024-03-01T08:05:00|2024-03-01T08:05:00|2024-03-01T08:05:00|2024-03-02T10:08:04|1-02:03:04||1|0:0||cpu=8,gres/gpu:a100=8,gres/gpu=8,mem=512G,node=1
4101.extern|4101.extern||vision||extern|COMPLETED|2024-03-01T08:05:00|2024-03-01T08:05:00|2024-03-01T08:05:00|2024-03-02T10:08:04|1-02:03:04||2|0:0||billing=16,gres/gpu=16,node=2
4101.0|4101.0||vision||python|COMPLETED|2024-03-01T08:05:03|2024-03-01T08:05:03|2024-03-01T08:05:03|2024-03-02T10:08:00|1-02:02:57||2|0:0||cpu=16,gres/gpu=16,node=2
4102_4|4103|bob|nlp|gpu|sweep|FAILED|2024-03-01T08:10:00|2024-03-01T08:20:00|2024-03-01T08:30:00|2024-03-01T08:31:00|00:01:00|00:30:00|1|1:0|cpu=1,gres/gpu:v100=2,gres/gpu=2,node=1|cpu=1,gres/gpu:v100=2,gres/gpu=2,node=1
4102_[5-9%2]|4102|bob|nlp|gpu|sweep|PENDING|2024-03-01T08:10:00|2024-03-01T08:20:00|Unknown|Unknown|00:00:00|00:30:00|1|0:0|cpu=1,gres/gpu=2,node=1|
4110+0|4110|eve|vision|gpu|mixed|TIMEOUT|2024-03-01T08:11:00|2024-03-01T08:11:00|2024-03-01T08:12:00|2024-03-01T08:13:30|00:01:30|UNLIMITED|1|0:0|cpu=1,gres/gpu=4,node=1|cpu=1,gres/gpu:a100=4,gres/gpu=4,node=1
4110+1|4111|eve|vision|cpu|mixed|TIMEOUT|2024-03-01T08:11:00|2024-03-01T08:11:00|2024-03-01T08:12:00|2024-03-01T08:13:30|00:01:30|UNLIMITED|1|0:0|cpu=64,node=1|cpu=64,node=1
4120|4120|fay|nlp|gpu|again|NODE_FAIL|2024-03-01T09:00:00|2024-03-01T09:00:00|2024-03-01T09:00:10|2024-03-01T09:10:10|00:10:00|Partition_Limit|1|0:0|cpu=1,gres/gpu=8,node=1|cpu=1,gres/gpu:a100=8,gres/gpu=8,node=1
4120|4120|fay|nlp|gpu|again|COMPLETED|2024-03-01T09:10:10|2024-03-01T09:12:10|2024-03-01T09:12:20|2024-03-01T09:32:20|00:20:00|Partition_Limit|1|0:0|cpu=1,gres/gpu=8,node=1|cpu=1,gres/gpu:a100=8,gres/gpu=8,node=1
4130|4130|ann|vision|gpu|oops|CANCELLED by 1000|2024-03-01T09:20:00|Unknown|None|2024-03-01T09:21:00|00:00:00|01:00:00|1|0:0|cpu=1,gres/gpu=1,node=1|
4140|4140|ann|vision|gpu|stop|CANCELLED by 1000|2024-03-01T09:30:00|2024-03-01T09:30:00|2024-03-01T09:31:00|2024-03-01T09:31:30|00:00:30|01:00:00|1|0:15|cpu=1,gres/gpu=1,node=1|cpu=1,gres/gpu:a100=1,node=1
4150|4150|bob|nlp|gpu|long|RUNNING|2024-03-01T09:40:00|2024-03-01T09:40:00|2024-03-01T09:41:00|Unknown|3-00:00:00|7-00:00:00|4|0:0|cpu=4,gres/gpu=32,node=4|cpu=4,gres/gpu:a100=32,gres/gpu=32,node=4
"""  # noqa: E501
PLAIN = """ID,Submitted-At,GPUs,Runtime_ms,User,Queue
a,2021-01-01T00:00:10,1,1500,ann,q1
b,2021-01-01T00:00:00,2.5,2500,bob,
"""
# Format -> the text; the reader must be found by content alone.
SAMPLES = {
    "philly": PHILLY,
    "helios": HELIOS,
    "helios-slice": HELIOS_SLICE,
    "mirror": MIRROR,
    "pai": PAI,
    "openb": OPENB,
    "acme-seren": ACME_SEREN,
    "acme-kalos": ACME_KALOS,
    "gavel": GAVEL,
    "tiresias": TIRESIAS,
    "muri": MURI,
    "pollux": POLLUX,
    "swf": SWF,
    "sacct": SACCT,
    "timestamp": TIMESTAMP,
    "golden": GOLDEN,
    "csv": PLAIN,
}
